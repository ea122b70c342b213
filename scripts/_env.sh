# Sourced by the scripts here: `need_env run` or `need_env test` makes `.venv` with the pinned
# versions of constraints.txt, or reuses it when nothing that decides its content has changed.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv

# OpenMP's threads spin at every barrier unless told to sleep.  On two cores that somebody else uses
# too, each barrier then waits for a thread that is not running: steps take five times as long.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}

# Hundreds of processes load the package in one run of the tests: compiled once, it is theirs too.
unset PYTHONDONTWRITEBYTECODE

# A version manager's shim may exist and still refuse to run, and a Debian Python may lack
# ensurepip: only trying tells.
usable() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' </dev/null >/dev/null 2>&1
}

# Prints $PYTHON, or else the newest usable Python that constraints.txt has versions for.
find_python() {
    local candidate candidates=(python3.13 python3.12 python3.11 python3.10 python3)
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        if usable "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "${PYTHON:-python3}: no Python >= 3.10 with venv and ensurepip;" \
        "install one (on Debian: apt-get install python3-venv) or name it: PYTHON=/path/to/python" >&2
    return 1
}

# Runs a command without its noise; shows all of it if the command fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" </dev/null >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then cat "$log" >&2; fi
    rm -f "$log"
    return "$status"
}

# What decides the content of the environment, as a number.
fingerprint() {
    cat "$ROOT/pyproject.toml" "$ROOT/constraints.txt" "$ROOT/scripts/_env.sh" | cksum
}

# Whether the environment was completed for this purpose with the present pins.
current() {
    [ -x "$VENV/bin/python" ] && [ "$(cat "$VENV/trainperf-$1" 2>/dev/null)" = "$(fingerprint)" ]
}

need_env() {
    # What the tests need contains what a run needs.
    if current test || current "$1"; then return; fi
    local python began=$SECONDS
    # A moved or half-removed environment is made anew.
    if ! quietly "$VENV/bin/python" -m pip --version 2>/dev/null; then
        python=$(find_python)
        echo "making .venv with $("$python" --version)" >&2
        quietly "$python" -m venv --clear "$VENV"
    fi
    echo "installing the pinned packages into .venv; the first time takes minutes" >&2
    install "$1"
    fingerprint >"$VENV/trainperf-$1"
    echo "installed in $((SECONDS - began)) s" >&2
}

install() {
    local pip=("$VENV/bin/python" -m pip --disable-pip-version-check install
        --constraint "$ROOT/constraints.txt")
    # The pip that comes with Python 3.10 knows neither dependency groups nor build constraints.
    quietly "${pip[@]}" pip
    pip+=(--build-constraint "$ROOT/constraints.txt" --editable "$ROOT[recipes]")
    if [ "$1" = test ]; then
        pip+=(--group "$ROOT/pyproject.toml:dev" --group "$ROOT/pyproject.toml:docs")
    fi
    quietly "${pip[@]}"
}
