# Other scripts source this file. `recordings SET PART` sets the array `folders` to the folders of PART.
# SET is shipped (the selection in tests/data/recordings), whole (the folder that KVCAST_CONFORMANCE
# names) or whole_033 (the folder that KVCAST_CONFORMANCE_033 names). If the variable is not set, the
# script exits with code 77 ("skipped").
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
