# Sourced. recordings SET PART: the folders of recorded data of `part` into the array `folders`.
# SET: shipped (the selection of tests/data/recordings), whole or whole_033 (the folders that
# KVCAST_CONFORMANCE and KVCAST_CONFORMANCE_033 name; the script ends with 77, "skipped", where they
# name none).
recordings() {
  local root variable
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../data/recordings" && pwd)
  case $1 in
    shipped) folders=("$root"/*/"$2"); return ;;
    whole) variable=KVCAST_CONFORMANCE ;;
    whole_033) variable=KVCAST_CONFORMANCE_033 ;;
    *) echo "no such set of recordings: $1" >&2; exit 1 ;;
  esac
  if [ -z "${!variable:-}" ]; then
    echo "skipped: $variable names no recorded data"
    exit 77
  fi
  folders=("${!variable}/$2")
}
