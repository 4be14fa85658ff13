"""URLs of sources: what they mean, and that what may be a secret in them is not said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.jobs.finding.addresses import Address, is_store_url, parse, shown, url_below


@pytest.mark.parametrize("text", ["s3://bucket/a.mp4", "S3://bucket", "https://host/a.mp4", "memory://x/a"])
def test_a_scheme_makes_a_url(text: str) -> None:
    assert is_store_url(text)


@pytest.mark.parametrize("text", ["a.mp4", "/data/a.mp4", "s3:/bucket/a.mp4", "c:\\a.mp4", "file:///a.mp4"])
def test_anything_else_is_a_path(text: str) -> None:
    assert not is_store_url(text)


@pytest.mark.parametrize(
    ("text", "url", "root", "key"),
    [
        ("s3://in/a/b.mp4", "s3://in/a/b.mp4", "s3://in", "a/b.mp4"),
        ("s3://in/a/", "s3://in/a", "s3://in", "a"),
        ("s3://in", "s3://in", "s3://in", ""),
        # A key may hold what is special in a URL of the web.
        ("s3://in/50% of #1?.mp4", "s3://in/50% of #1?.mp4", "s3://in", "50% of #1?.mp4"),
        ("abfss://files@account.dfs.core.windows.net/a.mp4",) * 2
        + ("abfss://files@account.dfs.core.windows.net", "a.mp4"),
        ("https://host:8000/x/my%20a.mp4", "https://host:8000/x/my%20a.mp4", "https://host:8000/x", "my a.mp4"),
        ("https://host/x/a.mp4?sig=1", "https://host/x/a.mp4", "https://host/x", "a.mp4"),
    ],
)
def test_a_url_is_a_key_below_a_root(text: str, url: str, root: str, key: str) -> None:
    address = parse(text)
    assert (address.url, address.root, address.key) == (url, root, key)


def test_what_may_be_a_signature_is_kept_apart() -> None:
    address = parse("https://host/x/a.mp4?X-Amz-Signature=topsecret")
    assert address.query == "X-Amz-Signature=topsecret"
    assert "topsecret" not in f"{address!r} {address.url} {shown('https://host/x/a.mp4?X-Amz-Signature=topsecret')}"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("s3://", "names no bucket"),
        ("s3:///a.mp4", "names no bucket"),
        ("s3://in/a//b.mp4", "empty part"),
        ("s3://in/../b.mp4", "empty part"),
        ("https://host", "names no file"),
        ("https://host/?topsecret", "names no file"),
        ("https://me:topsecret@host/a.mp4", "presigned URL"),
        ("s3://key:topsecret@in/a.mp4", "credentials"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_a_remedy_and_without_its_secrets(text: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy) as caught:
        parse(text)
    assert "topsecret" not in str(caught.value)


@given(st.text("ab/?#@:%. ", max_size=12), st.sampled_from(["http", "https"]))
def test_no_query_or_password_of_the_web_is_ever_shown(rest: str, scheme: str) -> None:
    said = shown(f"{scheme}://user:topsecret@host/{rest}?topsecret#topsecret")
    assert "topsecret" not in said


def test_paths_of_a_list_begin_in_a_folder_of_a_store() -> None:
    assert url_below("s3://in/lists", "a/b.mp4") == "s3://in/lists/a/b.mp4"
    assert url_below("s3://in/lists", "../b.mp4") == "s3://in/b.mp4"
    assert url_below("s3://in", "./b.mp4") == "s3://in/b.mp4"
    assert url_below("s3://in/lists", "s3://other/c.mp4") == "s3://other/c.mp4"


def test_the_address_of_another_key_has_the_same_root() -> None:
    assert parse("s3://in/a").below("a/b.mp4") == Address("s3://in/a/b.mp4", "a/b.mp4", "s3://in")
    assert parse("s3://in").below("b.mp4").url == "s3://in/b.mp4"
