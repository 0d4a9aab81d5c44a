#include "src/tools/conformance.h"
namespace kvcast::tools {
Status RunFramesConformance(const std::vector<std::string>&, ConformanceReport&) { return {}; }
}  // namespace kvcast::tools
