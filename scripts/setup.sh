#!/usr/bin/env bash
# Makes a virtual environment with the pinned versions. Usage: scripts/setup.sh VENV [dev]
#
# Without an NVIDIA GPU torch must be the CPU build (0.2 GB instead of several GB of CUDA). Where the package
# index at hand has one under the pinned version it is taken; else it comes from PyTorch's own CPU index.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
group=${2:-}
python=${PYTHON:-python3}

say() { printf '== %s\n' "$*"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

need_package() { # COMMAND-THAT-PROVES-IT PACKAGE...: installs by apt what is missing
  local proof=$1; shift
  if eval "$proof" >/dev/null 2>&1; then return; fi
  say "installing $* (Debian package)"
  as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends "$@"
}

need_package "command -v $python" python3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Python 3.11 or newer is needed; $python is $("$python" --version 2>&1). Try: make PYTHON=python3.12 run" >&2
  exit 2
}
need_package "$python -c 'import venv, ensurepip'" python3-venv
need_package "command -v cc" gcc libc6-dev # Triton and torch.compile build small C modules

if [ ! -x "$venv/bin/python" ]; then
  say "creating $venv"
  "$python" -m venv "$venv"
fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

"$venv/bin/python" -c 'import pip, sys; sys.exit(int(pip.__version__.split(".")[0]) < 26)' || pip install -q -U pip

torch=$(sed -n 's/^torch==//p' constraints.txt)
if ! "$venv/bin/python" -c "import torch, sys; sys.exit(torch.__version__.split('+')[0] != '$torch')" 2>/dev/null; then
  if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
    say "installing torch $torch (CUDA build: an NVIDIA GPU is present)"
    pip install -q "torch==$torch" -c constraints.txt
  else
    say "installing torch $torch (CPU build: no NVIDIA GPU here)"
    pip install -q "torch==$torch+cpu" -c constraints.txt 2>/dev/null ||
      pip install -q "torch==$torch+cpu" -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu
  fi
fi

say "installing mkevolve and its pinned dependencies"
pip install -q -c constraints.txt -e .
if [ "$group" = dev ]; then
  say "installing the development tools"
  pip install -q -c constraints.txt --group dev
fi
say "ready"
