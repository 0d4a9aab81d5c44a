# To be sourced. recordings SET PART: sets the array `folders` to the recorded folders of PART.
# SET: shipped (the selection of tests/data/recordings), whole or whole_033 (the folders that
# KVCAST_CONFORMANCE and KVCAST_CONFORMANCE_033 name; if these are not set, the script ends with 77,
# "skipped").
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
