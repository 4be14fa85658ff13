"""Which columns of a snapshot in a store are fetched together, before the first of them is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .zarr_zip import Members

# What is fetched together is in memory until the next columns are. Fewer bytes would leave connections without work:
# sixteen pieces come at a time.
MAX_BYTES = 128 * 1024 * 1024


def fetching_in_turn(
    members: Members, columns: Sequence[str], *, first: Sequence[str] = (), max_bytes: int = MAX_BYTES
) -> Callable[[str], None]:
    """Fetch the columns `first`, or else the first group of `columns`. Returns a function to be called with the path of
    each of `columns`, such as "videos/id", before it is read, in their order. Where a group begins, the function
    fetches that group, and gives up what was fetched before.

    A group has at most `max_bytes`, or a single column.
    """
    sizes = dict.fromkeys(columns, 0)
    for name, (num_bytes, _) in members.contents().items():
        if _column_of(name) in sizes:
            sizes[_column_of(name)] += num_bytes
    groups = [*([list(first)] if first else []), *grouped(sizes, max_bytes)]
    # The documents of the store and of its groups are read before any column.
    _fetch(members, {*groups[0], *(name for name in members.directory if name.count("/") < 2)})
    later = {group[0]: set(group) for group in groups[1:]}

    def before(column: str) -> None:
        if column in later:
            _fetch(members, later[column])

    return before


def grouped(sizes: dict[str, int], max_bytes: int) -> list[list[str]]:
    """Runs of names with `max_bytes` together or less, or of one name with more."""
    groups: list[list[str]] = [[]]
    left = max_bytes
    for name, num_bytes in sizes.items():
        if num_bytes > left and groups[-1]:
            groups.append([])
            left = max_bytes
        groups[-1].append(name)
        left -= num_bytes
    return groups


def _fetch(members: Members, names: set[str]) -> None:
    members.will_need(lambda name: name in names or _column_of(name) in names)


def _column_of(name: str) -> str:
    """The column that a member of a snapshot is of: "videos/id" for "videos/id/c/0" and "videos/id_offsets/c/0"."""
    table, _, rest = name.partition("/")
    return f"{table}/{rest.partition('/')[0].removesuffix('_offsets')}"
