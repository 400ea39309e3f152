#!/usr/bin/env bash
# Make the virtual environment $1 with Python 3.11, 3.12 or 3.13, unless a working one stands there.
# PYTHON=... names the interpreter; otherwise the first that really runs is taken, 3.11 before the others, since the
# stored results were made with it (a pyenv shim named python3.11 exists even where no 3.11 is selected, so each
# candidate is run, not only found).
set -euo pipefail
venv="$1"
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'

if "$venv/bin/python" -c "$fits" 2>/dev/null && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

python=""
for candidate in ${PYTHON:-python3.11 /usr/bin/python3.11 /usr/local/bin/python3.11 python3.12 python3.13 python3 python}; do
    if "$candidate" -c "$fits" 2>/dev/null; then
        python="$candidate"
        break
    fi
done
if [ -z "$python" ]; then
    echo "error: no Python 3.11, 3.12 or 3.13 found${PYTHON:+ at $PYTHON}. Install one, or name it: make env PYTHON=/path/to/python3.11" >&2
    exit 1
fi

rm -rf "$venv"
if "$python" -c 'import ensurepip' 2>/dev/null && "$python" -m venv "$venv" 2>/dev/null; then
    exit 0
fi

# Debian ships ensurepip in a package of its own (python3.11-venv). The system's pip can fill the gap.
rm -rf "$venv"
if "$python" -m venv --without-pip "$venv" && "$python" -m pip --python "$venv/bin/python" install pip; then
    exit 0
fi
rm -rf "$venv"
echo "error: $python can make no virtual environment with pip: it has neither ensurepip nor a pip of 22.3 or later." >&2
echo "Install one of them (Debian, Ubuntu: apt install python3.11-venv), or name another: make env PYTHON=..." >&2
exit 1
