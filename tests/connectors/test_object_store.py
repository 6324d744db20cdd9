"""The sources `files` and `s3`, against real folders and a real S3 server."""

from __future__ import annotations

import os
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.servers.s3 import S3Server
from vecload.documents import Container, Document, Problem, Skipped, key_text
from vecload.errors import SourceError
from vecload_connectors.sources import s3_tree
from vecload_connectors.sources.object_store import FILES, S3, FilesSettings, ObjectStoreSource, S3Settings
from vecload_connectors.sources.patterns import Patterns

Listed = dict[str, Container | Skipped | Problem]


def local(root: Path, **settings: object) -> ObjectStoreSource:
    source = FILES.open(FilesSettings.model_validate({"url": str(root), **settings}))
    assert isinstance(source, ObjectStoreSource)
    return source


def remote(s3: S3Server, url: str, **settings: object) -> ObjectStoreSource:
    source = S3.open(S3Settings.model_validate({"url": url, **s3.settings, **settings}))
    assert isinstance(source, ObjectStoreSource)
    return source


def listed(source: ObjectStoreSource) -> Listed:
    return {str(item.key): item for item in source.list()}


def read(source: ObjectStoreSource, key: str) -> Document | Skipped | Problem:
    container = listed(source)[key]
    assert isinstance(container, Container)
    [item] = source.read(container)
    return item


def outcome(item: object) -> tuple[str, bool]:
    assert isinstance(item, Problem), item
    return item.reason, item.transient


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.md").write_text("alpha")
    (root / "sub" / "b.md").write_text("beta")
    (root / "sub" / "deep" / "c.txt").write_text("gamma")
    return root


# ---------------------------------------------------------------- globs


@pytest.mark.parametrize(
    ("include", "exclude", "path", "wanted"),
    [
        ([], [], "a/b/c.md", True),
        (["*.md"], [], "a.md", True),
        (["*.md"], [], "a/a.md", False),
        (["**/*.md"], [], "a.md", True),
        (["**/*.md"], [], "a/b/c.md", True),
        (["**/*.md"], [], "a/b/c.MD", False),
        (["a/**"], [], "a/b/c", True),
        (["a/"], [], "a/b/c", True),
        (["a/**"], [], "ab/c", False),
        (["a/**/c"], [], "a/c", True),
        (["?.md"], [], "ab.md", False),
        (["[ab].md"], [], "b.md", True),
        (["[!ab].md"], [], "b.md", False),
        (["a.md", "b.md"], [], "b.md", True),
        ([], ["**/*.tmp"], "x/y.tmp", False),
        ([], ["a/**"], "a/b", False),
        ([], [], ".hidden", False),
        ([], [], "a/.git/config", False),
        (["**/*"], [], ".hidden", False),
        (["**/.env"], [], "a/.env", True),
        ([".github/**"], [], ".github/x/y.yml", True),
        (["**/.*", ".x/**"], ["**/*.tmp"], ".x/y.tmp", False),
        ([], [], "line\nbreak.md", True),
    ],
)
def test_globs(include: list[str], exclude: list[str], path: str, wanted: bool) -> None:
    assert Patterns(include, exclude).match(path) is wanted


def test_a_broken_glob_is_a_wrong_setting() -> None:
    with pytest.raises(ValidationError, match="no glob"):
        FilesSettings(url="/x", include=["[z-a]"])


def test_include_and_exclude_over_a_folder(tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".git" / "config.md").write_text("hidden")
    assert set(listed(local(tree))) == {"a.md", "sub/b.md", "sub/deep/c.txt"}
    assert set(listed(local(tree, include=["**/*.md"], exclude=["sub/**"]))) == {"a.md"}
    assert set(listed(local(tree, include=["**", ".git/**"], exclude=["**/*.txt"]))) == {
        "a.md",
        "sub/b.md",
        ".git/config.md",
    }


# ---------------------------------------------------------------- a folder


def test_a_document_is_its_bytes_under_its_relative_path(tree: Path) -> None:
    assert read(local(tree), "sub/b.md") == Document("sub/b.md", b"beta", "b.md", {})


def test_the_id_is_the_resolved_path(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree)
    assert local(tmp_path / "link").id == str(tree.resolve())


def test_a_tag_tells_a_change(tree: Path) -> None:
    source = local(tree)
    before = listed(source)
    assert listed(source) == before
    assert source.capabilities.weak_tags
    (tree / "a.md").write_text("alpha!")
    after = listed(source)
    assert [key for key in after if after[key] != before[key]] == ["a.md"]


def test_a_missing_folder_and_a_file_are_refused(tree: Path) -> None:
    with pytest.raises(SourceError, match=r"missing does not exist"):
        list(local(tree / "missing").list())
    with pytest.raises(SourceError, match=r"a\.md is no folder"):
        list(local(tree / "a.md").list())


def test_a_pipe_a_socket_and_a_device_never_block(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    os.symlink("fifo", tree / "to-fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tree / "socket"))
        items = listed(local(tree))
    for name in ("fifo", "to-fifo", "socket"):
        assert items[name] == Skipped(name, "not_a_regular_file")


def test_a_file_that_became_a_pipe_is_not_waited_for(tree: Path) -> None:
    source = local(tree)
    container = listed(source)["a.md"]
    (tree / "a.md").unlink()
    os.mkfifo(tree / "a.md")
    assert isinstance(container, Container)
    assert list(source.read(container)) == [Skipped("a.md", "not_a_regular_file")]


def test_symlinks(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tree / "inside").symlink_to("sub/b.md")
    (tree / "outside").symlink_to(tmp_path / "secret")
    (tree / "broken").symlink_to("nowhere")
    (tree / "self").symlink_to("self")
    (tree / "sub" / "loop").symlink_to(tree)
    items = listed(local(tree))
    assert read(local(tree), "inside") == Document("inside", b"beta", "inside")
    assert items["outside"] == Skipped("outside", "symlink_outside")
    assert items["broken"] == Skipped("broken", "broken_link")
    assert items["self"] == Skipped("self", "broken_link")
    assert items["sub/loop"] == Skipped("sub/loop", "symlink_directory")
    assert not [key for key in items if key.startswith("sub/loop/")]


def test_a_file_that_became_a_link_out_of_the_root_is_not_read(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    source = local(tree)
    container = listed(source)["a.md"]
    (tree / "a.md").unlink()
    (tree / "a.md").symlink_to(tmp_path / "secret")
    assert isinstance(container, Container)
    assert list(source.read(container)) == [Skipped("a.md", "symlink_outside")]


def test_names_that_are_not_utf8_or_look_like_json(tree: Path) -> None:
    raw = os.fsencode(tree)
    for name, content in ((b"b\xff.md", b"odd"), (b"123", b"number"), (b"line\nbreak", b"break")):
        with open(raw + b"/" + name, "wb") as file:
            file.write(content)
    source = local(tree)
    contents = {}
    for container in source.list():
        assert isinstance(container, Container)
        assert container.key.isprintable()
        [document] = source.read(container)
        assert isinstance(document, Document)
        assert key_text(document.key) == container.key
        contents[document.key] = document.content
    assert contents["b\udcff.md"] == b"odd"
    assert contents["123"] == b"number"
    assert contents["line\nbreak"] == b"break"


def test_a_vanished_file_is_a_transient_problem(tree: Path) -> None:
    source = local(tree)
    container = listed(source)["a.md"]
    (tree / "a.md").unlink()
    assert isinstance(container, Container)
    [problem] = source.read(container)
    assert outcome(problem) == ("vanished", True)


def test_a_file_that_is_too_large_is_not_read(tree: Path) -> None:
    with open(tree / "huge", "wb") as file:
        file.truncate(1 << 40)
    source = local(tree, max_document_bytes=5)
    assert outcome(read(source, "huge")) == ("too_large", False)
    assert isinstance(read(source, "a.md"), Document)  # exactly 5 bytes


def as_nobody(check: Callable[[], None]) -> None:
    """Runs `check` in a forked child as a user who may not read everything."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def public_tree() -> Iterator[Path]:
    """A folder that every user may enter; those of `tmp_path` are their owner's alone."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "a.md").write_text("alpha")
        yield root


def test_what_may_not_be_read_is_a_problem_and_the_rest_goes_on(public_tree: Path) -> None:
    tree = public_tree
    (tree / "closed").mkdir(mode=0o000)
    (tree / "closed.md").write_text("closed")
    (tree / "closed.md").chmod(0o000)

    def check() -> None:
        items = listed(local(tree))
        assert outcome(items.pop("closed/")) == ("unreadable", True)
        assert set(items) == {"a.md", "closed.md"}
        assert outcome(read(local(tree), "closed.md")) == ("unreadable", True)
        assert isinstance(read(local(tree), "a.md"), Document)
        assert "closed/" not in listed(local(tree, exclude=["closed/**"]))
        with pytest.raises(SourceError, match="cannot be listed"):
            list(local(tree / "closed").list())

    as_nobody(check)


# ---------------------------------------------------------------- S3


def test_listing_is_paged_and_in_full(s3: S3Server) -> None:
    bucket = s3.make_bucket("paged")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: s3.put(bucket, f"docs/{i:04}.md", b"x"), range(1205)))
    s3.put(bucket, "docs2/other.md", b"x")
    source = remote(s3, f"s3://{bucket}/docs")
    keys = [item.key for item in source.list()]
    assert keys == [f"{i:04}.md" for i in range(1205)]
    assert source.id == f"s3://{bucket}/docs/"
    assert not source.capabilities.weak_tags


def test_objects_and_their_changes(s3: S3Server) -> None:
    bucket = s3.make_bucket("objects")
    s3.put(bucket, "a.md", b"alpha")
    s3.put(bucket, "sub/caf\u00e9 #1 100%.txt", b"beta")
    s3.put(bucket, "empty.md", b"")
    s3.put(bucket, "marker/", b"")
    s3.put(bucket, ".hidden", b"hidden")
    source = remote(s3, f"s3://{bucket}")
    before = listed(source)
    assert set(before) == {"a.md", "sub/caf\u00e9 #1 100%.txt", "empty.md"}
    assert read(source, "sub/caf\u00e9 #1 100%.txt") == Document(
        "sub/caf\u00e9 #1 100%.txt", b"beta", "caf\u00e9 #1 100%.txt"
    )
    assert read(source, "empty.md") == Document("empty.md", b"", "empty.md")
    s3.put(bucket, "a.md", b"ALPHA")
    after = listed(source)
    assert [key for key in after if after[key] != before[key]] == ["a.md"]
    assert set(listed(remote(s3, f"s3://{bucket}/", include=["sub/*"]))) == {"sub/caf\u00e9 #1 100%.txt"}


def test_an_object_that_vanished_or_grew_too_large(s3: S3Server) -> None:
    bucket = s3.make_bucket("limits")
    for key in ("gone.md", "grown.md", "large.md"):
        s3.put(bucket, key, b"123456" if key == "large.md" else b"12345")
    source = remote(s3, f"s3://{bucket}/", max_document_bytes=5)
    items = {key: item for key, item in listed(source).items() if isinstance(item, Container)}
    s3.delete(bucket, "gone.md")
    s3.put(bucket, "grown.md", b"123456")
    s3.delete(bucket, "large.md")  # so that an attempt to read it would say `vanished`
    assert outcome(*source.read(items["gone.md"])) == ("vanished", True)
    assert outcome(*source.read(items["grown.md"])) == ("too_large", False)
    assert outcome(*source.read(items["large.md"])) == ("too_large", False)


def test_keys_from_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3.make_bucket("environment")
    s3.put(bucket, "a.md", b"alpha")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    source = S3.open(S3Settings(url=f"s3://{bucket}/"))
    assert [item.key for item in source.list()] == ["a.md"]


def test_keys_of_the_settings_take_no_session_token_from_the_environment(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.make_bucket("token")
    s3.put(bucket, "a.md", b"alpha")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-other-keys")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert set(listed(remote(s3, f"s3://{bucket}/"))) == {"a.md"}


def one_sentence(error: SourceError, *words: str) -> None:
    message = str(error)
    assert "\n" not in message
    assert message.endswith(".")
    for word in words:
        assert word in message


def test_a_wrong_secret(s3: S3Server) -> None:
    bucket = s3.make_bucket("refused")
    s3.put(bucket, "a.md", b"alpha")
    source = remote(s3, f"s3://{bucket}/", secret_access_key="not-the-secret")
    with pytest.raises(SourceError) as listing:
        list(source.list())
    with pytest.raises(SourceError) as reading:
        list(source.read(Container("a.md", None)))
    for error in (listing.value, reading.value):
        one_sentence(error, "s3://refused/", "secret_access_key", "AWS_SECRET_ACCESS_KEY")
        assert "not-the-secret" not in f"{error}"


def test_no_credentials_at_all(s3: S3Server) -> None:
    bucket = s3.make_bucket("anonymous")
    source = S3.open(S3Settings(url=f"s3://{bucket}/", endpoint=s3.endpoint, anonymous=True))
    with pytest.raises(SourceError) as error:
        list(source.list())
    one_sentence(error.value, "s3://anonymous/", "access_key_id")


def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    with pytest.raises(SourceError) as error:
        list(remote(s3, "s3://no-such-bucket/docs/").list())
    one_sentence(error.value, "s3://no-such-bucket/", "does not exist")


def test_an_endpoint_that_is_down(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_tree, "RETRY_SECONDS", 1)
    source = remote(s3, "s3://bucket/", endpoint="http://127.0.0.1:9")
    with pytest.raises(SourceError) as listing:
        list(source.list())
    with pytest.raises(SourceError) as reading:
        list(source.read(Container("a.md", None)))
    for error in (listing.value, reading.value):
        one_sentence(error, "s3://bucket/", "endpoint", "did not answer for 1 s")
        assert s3.secret_key not in f"{error}"


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "s3://No Such_/"},
        {"url": "s3:///prefix"},
        {"url": "https://bucket/"},
        {"url": "s3://bucket/", "endpoint": "localhost:9000"},
        {"url": "s3://bucket/", "access_key_id": "alone"},
        {"url": "s3://bucket/", "acces_key_id": "misspelt"},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        S3Settings.model_validate(settings)


def test_secrets_are_not_shown() -> None:
    settings = S3Settings.model_validate(
        {"url": "s3://bucket/", "access_key_id": "id", "secret_access_key": "hush", "session_token": "hush"}
    )
    assert "hush" not in repr(settings)
