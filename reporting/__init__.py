"""`shortgop report`: a dataset and its jobs on one HTML page. Start at `dataset_report`.

dataset_report                     reads a dataset, and writes its page
content_summary, failure_groups    what the tables say, in few numbers
page_file                          where a page is written: on this host, or in a store
page_plan, page_words              what the page says, as values; how numbers and times are written
clip_pictures, source_pictures     random clips of the dataset, and the same frames of their sources
clip_quality                       how close these clips are to their sources
page_html, page_sections, page_charts, page_markup, page_style  the page as text: pure functions
"""
