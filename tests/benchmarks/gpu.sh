#!/usr/bin/env bash
# Measures compiled local steps on a machine with a GPU, torch and pytest, in eight minutes.
#
#   tests/benchmarks/gpu.sh OUT            all parts, the aims first
#   tests/benchmarks/gpu.sh OUT PART...    only these parts
#   tests/benchmarks/gpu.sh --list         the parts: seconds, name and command
#
# It needs neither Snakemake nor a network. After each part OUT/summary.txt has the main numbers, and
# OUT/all.tar.gz all that was written. A part that fails or reaches its limit does not stop the
# others. END=540 gives it more seconds. The compiler's code stays in a temporary folder for another
# call.
set -uo pipefail
shopt -s nullglob
out=${1:?give a folder for the tables}
list='' chosen=${*:2}
for name in $chosen; do
  bash "$0" --list | cut -d ' ' -f 2 | grep -qxF -e "$name" && continue
  echo "there is no part $name: see $0 --list" >&2
  exit 2
done
if [ "$out" = --list ]; then
  list=yes out=OUT
else
  mkdir -p "$out/parts" && out=$(realpath "$out") || exit
fi
cd "$(dirname "$0")/../.." || exit
end=${END:-480} # seconds after which no part begins or goes on
for python in "${PYTHON:-python}" python3; do
  "$python" -c 'import sys, importlib.util as u; sys.exit(not u.find_spec("torch"))' 2> /dev/null && break
done
export PYTHONPATH=$PWD/workflow PYTHONUNBUFFERED=1
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} # all parts take the same GPU
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-${TMPDIR:-/tmp}/fedgrid-compiled-$(id -u)}

part() { # seconds, name, command
  if [ "$list" ]; then
    printf "%q " "$@"
    echo
    return
  fi
  [ -z "$chosen" ] || [[ " $chosen " = *" $2 "* ]] || return
  local began=$SECONDS limit=$((end - SECONDS < $1 ? end - SECONDS : $1)) said="no time left"
  if [ "$limit" -gt 5 ]; then
    timeout -k 5 "$limit" "${@:3}" > "$out/parts/$2.txt" 2> "$out/parts/$2.err"
    said="status $?, $((SECONDS - began)) s" # 124: it reached its limit
  fi
  echo "$2: $said" | tee -a "$out/parts.txt"
  summary
}

summary() { # what a part printed is there also if it was stopped
  {
    cat "$out/card.txt" "$out/parts.txt"
    for found in "$out"/parts/*.txt; do
      echo
      echo "== $(basename "$found" .txt)"
      tail -n 40 "$found"
      tail -n 3 "${found%.txt}.err"
    done
  } > "$out/summary.txt"
  tar -C "$out" -czf "$out/all.tar.gz" summary.txt parts.txt card.txt parts
}

[ "$list" ] || nvidia-smi > "$out/card.txt" 2>&1
gpu=("$python" -m tests.benchmarks.gpu --precision tf32)
bench=("$python" -m tests.benchmarks --device cuda --peers plain --compile --without-fp64 --repeats 1)
tests=("$python" -m pytest -v -m gpu -p no:cacheprovider tests/engine/test_gpu.py)
"$python" -c 'import xdist' 2> /dev/null && tests+=(-n "$((($(nproc) + 1) / 2))")

# The aims and what is equal. These limits add up to the end.
part 165 compile "${gpu[@]}" compile --rounds 3 --out "$out/parts/compile"
part 35 cell-tf32 "${gpu[@]}" cell --rounds 100
part 35 bench-A "${bench[@]}" --workloads A --rounds 20 --compiled-in tf32 --out "$out/parts/A"
part 70 bench-C "${bench[@]}" --workloads C --rounds 10 --compiled-in tf32 --out "$out/parts/C"
part 40 bench-D "${bench[@]}" --workloads D --rounds 3 --out "$out/parts/D"
part 30 bench-E "${bench[@]}" --workloads E --rounds 50 --out "$out/parts/E"
part 50 tests-compiled "${tests[@]}" -k "compiled or waits"
part 55 tests-methods "${tests[@]}" -k "cpu_does and stacked"

# In the time that is left.
part 60 shared "${gpu[@]}" shared --rounds 100
part 40 resumed "${gpu[@]}" resumed
part 30 waits "${gpu[@]}" waits
part 20 evaluation "${gpu[@]}" evaluation --rounds 20
part 40 profile "${gpu[@]}" profile
part 60 shared-mps "${gpu[@]}" shared --mps --rounds 100
part 60 cell-fp32 "${gpu[@]}" cell --precision fp32
part 90 cell-short-kernels "${gpu[@]}" cell --operations 30
part 90 cell-50-clients "${gpu[@]}" cell --clients 50 --rounds 20
part 90 cell-bf16 "${gpu[@]}" cell --precision bf16
exit 0 # what failed is in the summary
