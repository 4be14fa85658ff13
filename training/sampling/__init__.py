"""In which order clips come, and which rank reads which of them. Start at `orders`.

orders, class_batches, continued  orders: which clip comes at which position of an epoch
bound_order                   an order of one dataset, as samplers ask for it
class_labels, weights         classes and weights of clips, for orders that go by them
slices                        which positions each rank reads: arithmetic
sampler, sampler_states       ElasticSampler, and the states that it goes on from
buckets, kept_buckets, bucket_sampler  the same for batches of which each is of one of several datasets
effective                     what chunks of neighbours do to a batch
"""
