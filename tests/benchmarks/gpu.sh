#!/usr/bin/env bash
# Measures compiled local steps on a machine with a GPU, torch and pytest; takes about eight minutes.
#
#   tests/benchmarks/gpu.sh OUT
#
# It needs neither Snakemake nor a network. Everything that it prints is in the folder OUT: a log for
# each part, and the tables of the benchmark. A part that fails does not stop the others.
set -uo pipefail
out=${1:?give a folder for the tables}
mkdir -p "$out"
out=$(realpath "$out")
cd "$(dirname "$0")/../.."
end=480 # seconds after which no part begins or goes on
export PYTHONPATH=$PWD/workflow:$PWD:$PWD/tests TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$out/compiled}
python=${PYTHON:-python}

part() { # seconds, name, command
  local began=$SECONDS limit=$((end - SECONDS < $1 ? end - SECONDS : $1))
  [ "$limit" -gt 5 ] || { echo "$2: no time left" | tee -a "$out/parts.txt"; return; }
  timeout "$limit" "${@:3}" > "$out/$2.txt" 2>&1
  echo "$2: status $?, $((SECONDS - began)) s" | tee -a "$out/parts.txt"
}

nvidia-smi > "$out/card.txt" 2>&1
cell=("$python" -m tests.benchmarks.gpu)
bench=("$python" -m tests.benchmarks --device cuda --peers plain --compile --repeats 1)
part 150 cell-fp32 "${cell[@]}" cell
part 90 cell-tf32 "${cell[@]}" cell --precision tf32
part 60 profile-tf32 "${cell[@]}" profile --precision tf32
part 45 cell-replayed "${cell[@]}" cell --compile off
part 60 resumed "${cell[@]}" resumed
part 150 tests "$python" -m pytest -q -m gpu -p no:cacheprovider tests/engine/test_gpu.py -k "compiled or waits"
part 120 bench-C "${bench[@]}" --workloads C --rounds 10 --compiled-in tf32 --out "$out/C"
part 60 bench-A "${bench[@]}" --workloads A --rounds 20 --compiled-in tf32 --out "$out/A"
part 90 bench-D "${bench[@]}" --workloads D --rounds 3 --out "$out/D"
part 40 bench-E "${bench[@]}" --workloads E --rounds 50 --out "$out/E"
part 40 evaluation "${cell[@]}" evaluation --precision tf32 --rounds 20
part 60 waits "${cell[@]}" waits
part 120 shared-tf32 "${cell[@]}" shared --precision tf32 --rounds 20
part 60 cell-bf16 "${cell[@]}" cell --precision bf16
rm -rf "$out/compiled"
