from pathlib import Path

import pytest

from mkevolve_core.errors import ConfigError
from mkevolve_core.recordings import SHIPPED, Recording, recordings

INDEX = """
[[recording]]
name = "convvit"
file = "convvit.tar.gz"
title = "A vision transformer"
calls = 24
device = "NVIDIA H200"

[[recording]]
name = "gone"
file = "gone.tar.gz"
title = "Not here"
calls = 8
device = "NVIDIA H200"
"""


def test_recordings_are_those_of_the_index_whose_file_is_there(tmp_path: Path) -> None:
    (tmp_path / "index.toml").write_text(INDEX)
    (tmp_path / "convvit.tar.gz").write_bytes(b"")
    path = tmp_path / "convvit.tar.gz"
    assert recordings(tmp_path) == (Recording("convvit", path, "A vision transformer", 24, "NVIDIA H200"),)


def test_without_an_index_there_are_none(tmp_path: Path) -> None:
    assert recordings(tmp_path) == ()


@pytest.mark.parametrize("text", ["no toml", "[[recording]]\nname = 'a'", "recording = 3"])
def test_a_damaged_index_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.toml").write_text(text)
    with pytest.raises(ConfigError, match="index.toml cannot be used"):
        recordings(tmp_path)


def test_what_is_shipped_can_be_read() -> None:
    assert len({one.name for one in recordings()}) == len(recordings()) >= SHIPPED.is_dir()
