"""The lines of list files as they are written: text, CSV, TSV, JSONL and Parquet -> values by the names of columns."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, TextIO

from ...errors import ToolError, UsageError
from ...wording import counted

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Line = tuple[str, dict[str, Any]]
"""Where a line is, for messages, and its values by the names of columns."""

PATHS = ("path", "file_name", "video_path", "video")
"""What lists call the column of files, ours and those of other tools: Hugging Face's VideoFolder, and codes that train
on videos and texts. The first that a list has is meant; beside another one `video` mostly is a name."""

NO_LABELS = ("path", "video")
"""Those that are no columns of labels where they name the files. Items of training have a `video` of their own."""

# So few lines are in memory at a time, and so many share what each call costs.
_BATCH_LINES = 256
# As the lists of other tools begin, which have no header.
_FILE_NAME = re.compile(r"\.(mp4|mkv|webm|avi|mov)(?!\w)", re.IGNORECASE)
# As the lines of these lists are: a file, what separates its columns, and such as the number of its class.
_FILE_AND_NUMBERS = re.compile(
    _FILE_NAME.pattern + r"(?P<separator>[\s,;|])\s*(?P<numbers>-?\d+([\s,;|]+-?\d+)*)\s*$", re.IGNORECASE
)


# How Python reads bytes of a file that are not UTF-8.
NOT_UTF8 = re.compile("[\udc80-\udcff]")
# As programs call lists that they packed.
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")


class RepeatedKeyError(Exception):
    """An object of JSON has a key twice. `key` is the key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. RepeatedKeyError if two of its keys are the same: of their values all but the last would be
    lost."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise RepeatedKeyError(next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number])))
    return values


# json.loads does more for each line.
_decoded = json.JSONDecoder(object_pairs_hook=_object).raw_decode


def is_list(name: str) -> bool:
    return Path(name).suffix.lower() in _READERS


def refuse_other_list(file: str) -> None:
    """UsageError for a file of labels that is no list, by its name."""
    if Path(file).suffix.lower() in _PACKED and is_list(Path(file).stem):
        raise UsageError(
            f"the list {file!r} is packed, by its name, and lists are read as they are; unpack it, and give "
            f"{Path(file).stem!r}",
            file=file,
        )
    remedy = _OTHER_LISTS.get(Path(file).suffix.lower())
    if remedy is not None:
        raise UsageError(
            f"{file!r} is neither a video nor a list by its name, and lists are {', '.join(_READERS)}; {remedy}",
            file=file,
        )


def batches_of(file: str, keys: tuple[str, ...]) -> Iterator[list[Line]]:
    """The lines of a list, some hundreds at a time. A list of columns has one of the `keys`. UsageError names the line
    that is wrong; those before it come first, since they may have errors of their own."""
    batch: list[Line] = []
    try:
        for line in _READERS[Path(file).suffix.lower()](file, keys):
            batch.append(line)
            if len(batch) == _BATCH_LINES:
                yield batch
                batch = []
    except (UsageError, OSError):
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def first_lines(file: str, head: bytes, most: int) -> list[Line]:
    """The first lines of a CSV or JSON Lines list of sources, of whose file `head` is the beginning."""
    rows = _comma_rows if Path(file).suffix.lower() == ".csv" else _json_rows
    return list(islice(rows(file, ("path",), head), most))


def first_of_parquet(file: str, most: int) -> tuple[list[str], list[Any]]:
    """The names of the columns of a Parquet list of sources, and the paths of its first rows. Nothing else is read."""
    with _open_parquet(file) as table:
        names = table.schema_arrow.names
        _check_columns(file, names, ("path",))
        _refuse_no_paths(file, table, ("path",))
        key = path_key(names)
        batch = next(table.iter_batches(batch_size=most, columns=[key]), None)
        return names, batch.column(0).to_pylist() if batch is not None else []


@contextlib.contextmanager
def _open_text(file: str, newline: str, head: bytes | None = None) -> Iterator[TextIO]:
    with Path(file).open("rb") if head is None else io.BufferedReader(io.BytesIO(head)) as data:
        if data.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise UsageError(
                f'the list {file!r} is UTF-16, as Excel\'s "Unicode text" and `>` of Windows PowerShell write it; turn '
                "it into UTF-8, as `iconv -f UTF-16 -t UTF-8` does",
                file=file,
            )
        # Paths need not be UTF-8. An invalid byte becomes a lone surrogate here, and the same byte again when the path
        # is opened.
        with io.TextIOWrapper(data, encoding="utf-8-sig", errors="surrogateescape", newline=newline) as text:
            yield text


def _text_rows(file: str, _keys: tuple[str, ...]) -> Iterator[Line]:
    name = repr(file)
    with _open_text(file, "\n") as lines:
        for number, line in enumerate(lines, 1):
            path = line.removesuffix("\n").removesuffix("\r")
            text = path.lstrip()
            if text and text[0] != "#":
                labelled = _FILE_AND_NUMBERS.search(path)
                # A file may be called like this.
                if labelled and not (Path(file).parent / path).exists():
                    raise _with_labels(file, number, path, labelled)
                yield f"line {number} of {name}", {"path": path}


def _with_labels(file: str, number: int, line: str, labelled: re.Match[str]) -> UsageError:
    """For a line of a text list that has labels behind its file, as the lists of many training codes have: it would be
    a file that does not exist, and so would all others."""
    several = len(re.findall(r"\d+", labelled["numbers"])) > 1
    names = "'path', 'label'" if not several else "'path', ..., 'label'"
    return UsageError(
        f"line {number} of {file!r} is {line!r}: a .txt list has one path on each line and no labels; write one with "
        f"labels as .csv (pandas: read_csv({Path(file).name!r}, sep={labelled['separator']!r}, names=[{names}])"
        f".to_csv({Path(file).with_suffix('.csv').name!r}, index=False))",
        file=file,
    )


def _json_rows(file: str, _keys: tuple[str, ...], head: bytes | None = None) -> Iterator[Line]:
    name = repr(file)
    with _open_text(file, "\n", head) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                values = json_value(line)
            except RepeatedKeyError as error:
                raise UsageError(
                    f"line {number} of {file!r} has {error.key!r} twice; take one of them out, or rename it", file=file
                ) from None
            except (ValueError, RecursionError) as error:
                raise UsageError(
                    f"line {number} of {file!r} is not JSON: {error}; write one object on each line", file=file
                ) from None
            if not isinstance(values, dict):
                raise UsageError(
                    f'line {number} of {file!r} is not an object; write objects such as {{"path": "a.mp4"}}',
                    file=file,
                )
            yield f"line {number} of {name}", values


def json_value(text: str) -> Any:
    """The value that JSON text stands for. ValueError or RecursionError if it is none, RepeatedKeyError."""
    try:
        value, end = _decoded(text)
    except ValueError:
        return json.loads(text, object_pairs_hook=_object)
    return value if text[end:] in ("\n", "\r\n", "") else json.loads(text, object_pairs_hook=_object)


def _comma_rows(file: str, keys: tuple[str, ...], head: bytes | None = None) -> Iterator[Line]:
    return _table_rows(file, ",", keys, head)


def _tab_rows(file: str, keys: tuple[str, ...]) -> Iterator[Line]:
    return _table_rows(file, "\t", keys)


def _table_rows(file: str, delimiter: str, keys: tuple[str, ...], head: bytes | None = None) -> Iterator[Line]:
    name = repr(file)
    with _open_text(file, "", head) as stream:
        # A list that is written by hand has a space behind each comma. In quotes a space at the beginning stays.
        reader = csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=True)
        header: list[str] | None = None
        line = 1
        try:
            for cells in reader:
                if cells and header is None:
                    header = [cell.strip() for cell in cells]
                    _check_columns(file, header, keys)
                elif cells and header is not None:
                    if len(cells) != len(header):
                        raise _other_count(file, line, len(cells), len(header))
                    yield f"line {line} of {name}", dict(zip(header, cells, strict=True))
                line = reader.line_num + 1
        except csv.Error as error:
            if "field limit" in str(error):
                raise UsageError(
                    f"line {line} of {file!r} has a cell of more than {csv.field_size_limit():,} characters; a "
                    "double quote may be missing at its end; if not, write the list as .jsonl, which has no limit",
                    file=file,
                ) from None
            raise UsageError(
                f"line {line} of {file!r} is malformed: {error}; "
                "put text that holds quotes in double quotes, and write each quote in it twice",
                file=file,
            ) from None


def _other_count(file: str, line: int, num_cells: int, num_columns: int) -> UsageError:
    remedy = (
        "put text that holds the separator in double quotes"
        if num_cells > num_columns
        else "add the cells that are missing, empty ones as well"
    )
    return UsageError(
        f"line {line} of {file!r} has {counted(num_cells, 'cell')} and the header {num_columns}; {remedy}", file=file
    )


def _parquet_rows(file: str, keys: tuple[str, ...]) -> Iterator[Line]:
    number, name = 0, repr(file)
    with _open_parquet(file) as table:
        import pyarrow as pa

        _check_columns(file, table.schema_arrow.names, keys)
        _refuse_no_paths(file, table, keys)
        for batch in table.iter_batches():
            columns = {
                # Python's own types hold microseconds at most, so these columns become text.
                key: (
                    column.cast(pa.string())
                    if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type)
                    else column
                ).to_pylist()
                for key, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            for values in zip(*columns.values(), strict=True):
                number += 1
                yield f"row {number} of {name}", dict(zip(columns, values, strict=True))


def _refuse_no_paths(file: str, table: ParquetFile, keys: tuple[str, ...]) -> None:
    """UsageError if the column of files in a table is another tool's, and by its type has no paths: before any of its
    values are read, which may be whole videos."""
    import pyarrow as pa

    names = table.schema_arrow.names
    if not {*keys}.isdisjoint(names):
        return
    key = path_key(names)
    kind = table.schema_arrow.field(key).type
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(text) or pa.types.is_large_string(text)):
        raise UsageError(
            f"the list {file!r} has no column `path`, and its column {key!r} has no paths but {shortened(str(kind))}; "
            "write videos that are in it into files, and give their paths as `path`",
            file=file,
        )


@contextlib.contextmanager
def _open_parquet(file: str) -> Iterator[ParquetFile]:
    """The file of a table, in the block. UsageError if it is none, also for what the block meets later."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ToolError(
            f"reading the list {file!r} needs pyarrow ({error}); run `pip install pyarrow`", file=file
        ) from error
    with Path(file).open("rb") as stream:
        try:
            yield pq.ParquetFile(stream)
        except UsageError:
            raise
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(
                f"cannot read {file!r} as Parquet: {error}; write it again, or give a CSV or JSONL list",
                file=file,
            ) from error


def _check_columns(file: str, columns: Sequence[str], keys: tuple[str, ...]) -> None:
    strange = next((name for name in columns if "\0" in name or NOT_UTF8.search(name)), None)
    if strange is not None:
        raise UsageError(
            f"the list {file!r} has {strange!r} among the names of its columns, which is not UTF-8; write lists in "
            "UTF-8, and unpack those that are packed",
            file=file,
        )
    known = {*keys, *PATHS}
    if not known & set(columns):
        what = " or ".join(f"`{key}`" for key in keys)
        of = "files" if keys == ("path",) else "ids"
        separator = next((one for one in ";\t|," if known & {part.strip() for part in columns[0].split(one)}), "")
        if not separator and columns[0].split(" ")[0] in keys:
            # `video game` is a column.
            separator = " "
        if len(columns) == 1 and separator:
            raise UsageError(
                f"the list {file!r} has no column {what}, only {names_of(columns)}: its separator seems to be "
                f"{separator!r}; write it with commas as .csv, or with tabs as .tsv",
                file=file,
            )
        if _FILE_NAME.search(" ".join(columns)):
            raise UsageError(
                f"the list {file!r} begins with a file and not with the names of its columns, {names_of(columns)}; put "
                f"a line such as `{keys[0]},label` before it, and commas between the cells of each line",
                file=file,
            )
        raise UsageError(
            f"the list {file!r} has no column {what}, only {names_of(columns)}; "
            f"rename the column of {of} to `{keys[0]}`",
            file=file,
        )
    if "" in columns:
        raise UsageError(
            f"the list {file!r} has a column without a name; name it, or leave it out (pandas: to_csv(index=False))",
            file=file,
        )
    refuse_repeated(file, columns)


def path_key(columns: Collection[str]) -> str:
    """Which of the columns of a list has the file, by those of its first line. `path` if none has."""
    return next((name for name in PATHS if name in columns), "path")


def refuse_repeated(file: str, columns: Sequence[str]) -> None:
    """UsageError if two columns of a list have the same name."""
    twice = {name for name in columns if columns.count(name) > 1}
    if twice:
        raise UsageError(f"the list {file!r} has two columns {names_of(twice)}; rename one", file=file)


def names_of(columns: Sequence[str] | set[str] | dict[str, Any]) -> str:
    """The columns as messages say them."""
    return ", ".join(repr(column) for column in sorted(columns)) or "nothing"


_OTHER_LISTS = {
    ".json": "write an object on each line of a .jsonl file (pandas: to_json(orient='records', lines=True))",
    ".xls": "save it as .csv",
    ".xlsx": "save it as .csv",
}

_READERS: dict[str, Callable[[str, tuple[str, ...]], Iterator[Line]]] = {
    ".txt": _text_rows,
    ".csv": _comma_rows,
    ".tsv": _tab_rows,
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".parquet": _parquet_rows,
}
