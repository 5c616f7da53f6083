#!/usr/bin/env bash
# What one GPU gives, in under 10 minutes: bash benchmarks/gpu.sh [--nanogpt FOLDER] [--quick] [--cpu] [--out FOLDER]
# Without a GPU, --cpu rehearses it with tiny shapes and writes no figure of a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"  # also where PYTHONSAFEPATH is set
exec "${PYTHON:-python}" -m benchmarks.gpu "$@"
