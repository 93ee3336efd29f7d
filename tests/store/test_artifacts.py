import hashlib

import pytest

from mkevolve_core.errors import JournalError
from store.artifacts import FileArtifacts, MemoryArtifacts


class ArtifactsContract:
    @pytest.mark.parametrize("text", ["", "a\r\nb\n", "\x00\x1b[0m \ud800 \u2028é", "y" * 5_000_000])
    def test_what_is_put_is_got(self, artifacts, text):
        assert artifacts.get(artifacts.put(text)) == text

    def test_the_sha_is_of_the_bytes(self, artifacts):
        assert artifacts.put("é") == hashlib.sha256("é".encode()).hexdigest()

    @pytest.mark.parametrize("sha", ["0" * 64, "", "../../etc/passwd"])
    def test_what_was_never_put_is_a_key_error(self, artifacts, sha):
        with pytest.raises(KeyError):
            artifacts.get(sha)


class TestFileArtifacts(ArtifactsContract):
    @pytest.fixture
    def artifacts(self, tmp_path):
        return FileArtifacts(tmp_path / "artifacts")


class TestMemoryArtifacts(ArtifactsContract):
    @pytest.fixture
    def artifacts(self):
        return MemoryArtifacts()


def test_the_same_text_is_one_file(tmp_path):
    artifacts = FileArtifacts(tmp_path)
    assert artifacts.put("a") == artifacts.put("a")
    assert [path.name for path in tmp_path.iterdir()] == [artifacts.put("a")]


def test_a_changed_text_is_not_given_out(tmp_path):
    artifacts = FileArtifacts(tmp_path)
    (tmp_path / artifacts.put("a")).write_text("b")
    with pytest.raises(JournalError, match="was changed"):
        artifacts.get(hashlib.sha256(b"a").hexdigest())


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="Cannot write to"):
        FileArtifacts(tmp_path / "file").put("a")
