"""Answers a request as a person or any program would: the prompt on stdin, the answer on stdout.

`python llm_answering.py` knows nothing but the prompt; it stands for someone who opens a file and reads it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROLES = {"You review Triton code": "review", "You decompose a PyTorch module": "decompose"}


def main() -> None:
    from mkevolve_core.llm.fake import Seen
    from tests.whole.llm_script import Author

    prompt = sys.stdin.read()
    role = next((role for words, role in ROLES.items() if words in prompt), "generate")
    print(Author()(Seen("mailbox", "anyone", "", prompt, "1#1", role)).text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
