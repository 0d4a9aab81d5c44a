// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/source_change.h"

#include "router/service/ingest/source_policy.h"
#include "src/http/trace_parent.h"

namespace kvcast::router {
namespace {

ChangeOrigin OriginOf(const HttpRequest& request) {
  return {.peer = request.peer,
          .role = request.role ? AccessRoleName(*request.role) : std::string_view(),
          .traceparent = TraceParentOf(request)};
}

}  // namespace

std::optional<HttpReply> AddForClient(ServiceCore& core, const HttpRequest& request,
                                      const WorkerRegistration& source) {
  Status status = CheckSource(source, core.policy, SourceOrigin::kHttp);
  if (status.ok()) status = core.fleet->Add(source, AddedBy::kClient);
  if (!status.ok()) return RefuseSource(core, request, source.worker.name, status);
  core.source_log->NoteAdded(source, OriginOf(request));
  if (core.initial.state) core.initial.state->WriteClientSources(*core.fleet);
  return std::nullopt;
}

HttpReply RefuseSource(ServiceCore& core, const HttpRequest& request, std::string_view name,
                       const Status& status) {
  core.source_log->NoteRefused(name, OriginOf(request), status.message());
  return ErrorReply(status);
}

Status RemoveForClient(ServiceCore& core, const HttpRequest& request, const std::string& name) {
  Status status = core.fleet->Remove(name);
  if (core.initial.state && core.initial.state->ForgetClientSource(name)) status = Status();
  if (status.ok()) core.source_log->NoteRemoved(name, OriginOf(request));
  if (status.ok() && core.initial.state) core.initial.state->WriteClientSources(*core.fleet);
  return status;
}

}  // namespace kvcast::router
