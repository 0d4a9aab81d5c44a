// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/static_files.h"

#include <string>

// See cmake/KvcastEmbedFiles.cmake.
extern "C" {
extern const char kvcast_openapi_begin[], kvcast_openapi_end[];
extern const char kvcast_index_html_begin[], kvcast_index_html_end[];
extern const char kvcast_dashboard_css_begin[], kvcast_dashboard_css_end[];
extern const char kvcast_dashboard_js_begin[], kvcast_dashboard_js_end[];
extern const char kvcast_chart_js_begin[], kvcast_chart_js_end[];
}

namespace kvcast::router {
namespace {

// Chart.js sets inline styles on its canvases.
constexpr char kPolicy[] =
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'";

HttpRoute File(const char* path, std::string_view text, const char* content_type) {
  const HttpReply reply = {
      .body = std::string(text),
      .content_type = content_type,
      .headers = {{"Cache-Control", "no-cache"}, {"Content-Security-Policy", kPolicy}}};
  return {HttpRoute::Method::kGet,
          path,
          [reply](const HttpRequest&) { return reply; },
          HttpRoute::Lane::kObserver,
          HttpRoute::kSmallBody,
          std::nullopt};
}

}  // namespace

std::string_view OpenApiText() { return {kvcast_openapi_begin, kvcast_openapi_end}; }

std::vector<HttpRoute> StaticRoutes() {
  return {File("/openapi.json", OpenApiText(), "application/json"),
          File("/", {kvcast_index_html_begin, kvcast_index_html_end}, "text/html; charset=utf-8"),
          File("/dashboard.css", {kvcast_dashboard_css_begin, kvcast_dashboard_css_end},
               "text/css; charset=utf-8"),
          File("/dashboard.js", {kvcast_dashboard_js_begin, kvcast_dashboard_js_end},
               "text/javascript; charset=utf-8"),
          File("/dashboard/chart.js", {kvcast_chart_js_begin, kvcast_chart_js_end},
               "text/javascript; charset=utf-8")};
}

}  // namespace kvcast::router
