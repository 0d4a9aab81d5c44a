"""Planted bugs: (name, file, text, what stands there instead). Each text stands in its file once. Those that the
simulation cannot see have a fifth part, the check that does: a test program, a fuzz target, or a test of ctest.

SPDX-License-Identifier: Apache-2.0
"""

SOURCE = "src/stream/source.cc"
REPLICA = "router/replica.cc"
SOURCE_TESTS = "stream_unit_test"
REPLICA_TESTS = "router_replica_test"
SIM_TESTS = "sim_test"
REPAIR = "router/bucket_repair.cc"
INDEX = "router/prefix_index.cc"
READER = "src/wire/reader.cc"
EXTENSION = "src/residency/extension.cc"
FRAMES = "src/stream/frames.cc"
INTEROP = "ctest tools_interop_test"
RECORDED_FRAMES = "ctest tools_conformance_frames_test"
RELAY = "ctest tools_relay_test"
TAIL = "ctest tools_tail_test"
ROUTER_API = "ctest tools_router_api_test"
SESSION = "ctest tools_session_test"
DASHBOARD = "ctest tools_dashboard_test"

MUTATIONS = [
    ("skip the overlap check", SOURCE,
     """    case FingerprintWindow::Match::kOther:
      return BeginEpochAnew();
""",
     """    case FingerprintWindow::Match::kOther:
      unproven_ = false;
      request_.proven = true;
      return ApplyHeld();
"""),
    ("trust END", SOURCE,
     "  if (!has_hole() || ++tries_ < kMaxTries) return;\n",
     "  if (has_hole()) next_ = hold_back_.first_seq().value_or(seen_next_);\n"
     "  if (!has_hole() || ++tries_ < kMaxTries) return;\n"),
    ("apply the overlap of a replay again", SOURCE,
     """    case FingerprintWindow::Match::kSame:
      unproven_ = false;
""",
     """    case FingerprintWindow::Match::kSame:
      hooks_.apply(batch);
      unproven_ = false;
"""),
    ("forget the group in a key", INDEX,
     """  const uint8_t group = GroupCatalogue::GroupOf(event.group_idx);
  const PlaceId place = OpenPlace(""",
     """  const uint8_t group = 0;
  const PlaceId place = OpenPlace("""),
    ("miss the fence", SOURCE,
     """  if (applied_) {
    ++status_.resets;
    hooks_.reset(ResetReason::kRestart);
  }
""", ""),
    ("trust a new connection", SOURCE,
     "    if (next_ > 0) Unprove(SourceReason::kReconnected);\n", ""),
    ("apply what is behind", SOURCE,
     "  if (batch.seq < next_) return OnLiveOverlap(batch);\n",
     "  if (batch.seq < next_) {\n    hooks_.apply(batch);\n    return;\n  }\n"),
    ("keep what the old connection brought", SOURCE,
     """  // May be of an epoch that is over; if it is not, a replay brings it again.
  hold_back_.Clear();
""", ""),
    ("do not renew the connection", SOURCE, "  connected_ = false;\n  hooks_.renew_live();\n", "  OnConnected(now_ms_);\n"),
    ("ignore the epoch of a status", SOURCE,
     "  const bool other = epoch_ ? *epoch_ != status.epoch : next_ > 0 && status.next_seq < next_;\n",
     "  const bool other = false;\n"),
    ("believe a connection that is older than the publisher", SOURCE,
     "  return epoch_at_connect_ == status.epoch;\n",
     "  return epoch_at_connect_ || !status.places.empty() || true;\n", SOURCE_TESTS),
    ("ignore the epoch of a snapshot", SOURCE,
     "  if (epoch_ ? *epoch_ != status->epoch : !IsOfConnection(*status)) return BeginEpochAnew();\n", ""),
    ("take a snapshot without comparing", REPLICA,
     "  if (!reader_.Finish(declared).ok() || index_.HiddenDigests(worker_) != declared) return false;\n",
     ""),
    ("add a snapshot to the one before", REPLICA,
     "  index_.BeginHidden(worker_);\n  reader_.Restart();\n", "  index_.BeginHidden(worker_);\n"),
    ("go on after an undecodable batch", SOURCE,
     "  if (result == BatchResult::kUndecodable) Replace(SourceReason::kUndecodable);\n", ""),
    ("ignore a clear", INDEX,
     "  ClearTier(worker, router::TierOf(event.medium));\n", "  (void)router::TierOf(event.medium);\n"),
    ("lose batches without forgetting", SOURCE,
     """    status_.lost += seq - next_;
    ++status_.resets;
    hooks_.reset(reason);
""", "    status_.lost += seq - next_;\n"),
    ("say synced with batches missing", SOURCE, "  if (seq > 0) incomplete_ = true;\n", ""),
    ("never probe", SOURCE,
     "    const bool probe = probes() && now_ms >= probe_due_ms_;\n",
     "    const bool probe = false;\n"),
    ("never compare digests", REPLICA,
     "  return then.totals == status.Totals() ? DigestVerdict::kEqual : DigestVerdict::kDiffers;",
     "  return DigestVerdict::kEqual;"),
    ("compare with the digest of another moment", REPLICA,
     "  remembered_[next_seq % kRemembered] = {true, next_seq, index_.Digests(worker_)};",
     "  remembered_[(next_seq + 1) % kRemembered] = {true, next_seq + 1, index_.Digests(worker_)};"),
    ("hold back without bound", "src/stream/hold_back.h",
     "    return held_.size() < max_batches_ && bytes <= max_bytes_ - bytes_;",
     "    return held_.size() < SIZE_MAX || bytes < max_batches_ + max_bytes_;"),
    ("never find a source silent", SOURCE,
     "  if (hears_silence() && now_ms >= last_sign_ms_ + limits_.stale_ms) stale_ = true;\n", ""),
    ("let a run take closed blocks behind the sweep", "router/run_store.cc",
     "  DropClosed(number);\n", "", "router_index_test"),
    ("remember where a removal was beyond a store", "router/prefix_index.cc",
     "      removals = {};\n", "", "router_index_test"),
    ("take a removal for one from the place before", "router/prefix_index.cc",
     "removals.last->group_idx != event.group_idx ||\n      removals.last->medium != event.medium",
     "removals.last->medium != event.medium", "router_index_test"),
    ("count a full class of passers down", "router/locator_table.h",
     "      if ((counts >> shift & kMostPassed) == kMostPassed) return;\n", "", "router_index_test"),
    ("end a search at a bucket that another class passed", "router/locator_table.h",
     "passed.load(std::memory_order_acquire) >> ClassShift(fingerprint) & kMostPassed",
     "passed.load(std::memory_order_acquire) >> ClassShift(fingerprint + 32) & kMostPassed",
     "router_index_test"),
    ("put an entry where there was room before the shard grew", "router/locator_table.cc",
     "    room = nullptr;\n", "", "router_index_test"),
    ("remove all copies at once", "router/run_store.cc",
     "  if (RemoveExtra(key, place)) return Removal::kCopiesLeft;\n",
     "  while (RemoveExtra(key, place)) {\n  }\n"),
    ("mix the tiers", "src/residency/tier.cc",
     "  return StartsWithIgnoringCase(*medium, kMediumCpu) ? Tier::kCpu : Tier::kStorage;",
     "  return StartsWithIgnoringCase(*medium, kMediumCpu) ? Tier::kGpu : Tier::kStorage;"),
    ("snapshot each block once", "src/residency/snapshot_writer.cc",
     "copy < (*begin)->entry->copies; ++copy", "copy < 1; ++copy"),
    ("answer before catching up", "src/stream/publisher_state.cc",
     """  CatchUpLocked();
  return StatusLocked(buckets);""",
     """  residency::PublisherStatus status = StatusLocked(buckets);
  CatchUpLocked();
  status.next_seq = next_;
  return status;"""),
    ("say that the ring holds everything", "src/stream/publisher_state.cc",
     "  status.first_held = std::min(ring_.first_held(), next_);\n", ""),
    ("take every batch for the remembered one", "src/stream/fingerprint.cc",
     "  return entry.hash == Hash(batch.payload) ? Match::kSame : Match::kOther;",
     "  return Match::kSame;"),
    ("do not advance over a snapshot", SOURCE,
     "  next_ = status_.first_seq = status->next_seq;\n", "  status_.first_seq = status->next_seq;\n"),
    ("keep replies of a connection that is over", SOURCE,
     "  connected_ = false;\n  CloseRequest();\n  NoteState();\n", "  connected_ = false;\n  NoteState();\n",
     SOURCE_TESTS),
    ("keep old digests after a reset", REPLICA,
     """  restart ? index_.RestartWorker(worker_) : index_.ClearWorker(worker_);
  Forget();
""", "  restart ? index_.RestartWorker(worker_) : index_.ClearWorker(worker_);\n", REPLICA_TESTS),
    ("read the ring from one too far", "src/stream/replay_ring.cc",
     "  uint64_t seq = std::max(start, first_seq());\n",
     "  uint64_t seq = std::max(start, first_seq() + 1);\n"),
    ("let a hole be filled by what came later", SOURCE,
     "  while (!blocked()) {\n    const std::optional<HoldBack::Held> held = hold_back_.Take(next_);\n",
     "  while (!blocked()) {\n    next_ = hold_back_.first_seq().value_or(next_);\n"
     "    const std::optional<HoldBack::Held> held = hold_back_.Take(next_);\n"),
    ("never ask again", SOURCE,
     "  } else if (!request_.open() && connected_ && can_replay_) {\n",
     "  } else if (false) {\n"),
    ("repair by adding alone", REPAIR,
     "        for (; held > kept; --held) surplus[place].block_hashes.push_back(hash);\n", "",
     REPLICA_TESTS),
    ("repair without the copies", REPAIR,
     "      for (uint32_t i = 0; i < copies.count; ++i) {\n", "      if (copies.count > 0) {\n", REPLICA_TESTS),
    ("repair more than was asked for", REPAIR,
     "        if (!buckets_.test(DigestBucketOf(hash))) return;\n", "",
     REPLICA_TESTS),
    ("take a repair without comparing", REPLICA,
     "  if ((kept & ~buckets).any() || (added & buckets).any()) return false;\n",
     "  (void)(buckets | kept | added);\n", REPLICA_TESTS),
    ("say repaired whatever came of it", REPLICA,
     "  return index_.Digests(worker_) == status.Totals();\n", "  return true;\n", REPLICA_TESTS),
    ("ask for the wrong buckets", "src/residency/extension.cc",
     "(i / kBucketsPerBit);\n", "(63 - i / kBucketsPerBit);\n", REPLICA_TESTS),
    ("compare buckets before the state is as far", SOURCE,
     "  if (request_.end && request_.end->next_seq == next_) return GoOnWithRepair();\n",
     "  if (request_.end) return GoOnWithRepair();\n"),
    ("apply live batches while buckets are asked for", "src/stream/source.h",
     "(replace_ && !catches_up())", "(replace_ && repair_ == Repair::kNone)", SOURCE_TESTS),
    ("never repair", SOURCE,
     "  if (replace_ && epoch_ && can_repair) repair_ = Repair::kCompare;\n", "  (void)can_repair;\n", SIM_TESTS),
    ("repair for an epoch that is over", SOURCE,
     "  if (!TakeStatus(*status, /*proven=*/false)) return;\n  const bool usable =\n", "  const bool usable =\n",
     SOURCE_TESTS),
    ("never quarantine", SOURCE,
     "  quarantine_.Strike(why, now_ms_);\n", "  (void)why;\n", SOURCE_TESTS),
    ("leave quarantine with the first audit", "src/stream/quarantine.h",
     "    if (strikes_ == 0 || now_ms < until_ms()) return;\n", "    if (strikes_ == 0) return;\n", SOURCE_TESTS),
    ("audit all sources at once", SOURCE,
     "  if (jitter_ == 0) return ms;\n", "  if (jitter_ != 1) return ms;\n", SOURCE_TESTS),
    ("audit what leaves stores out", REPLICA,
     " || left_out_) {\n", ") {\n", REPLICA_TESTS),
    ("audit again at once what cannot be audited", SOURCE,
     "  audit_due_ms_ = now_ms_ + Jittered(limits_.audit_interval_ms);\n}\n", "}\n"),
    ("wait for replies that cannot come", SOURCE,
     "  const bool given_up = over.cut && cuts_ >= kMaxTries;\n", "  const bool given_up = over.cut && cuts_ < 0;\n",
     SOURCE_TESTS),
    ("trust the connection of who forgot the extension", SOURCE,
     "    asked_ = true;\n    return BeginEpochAnew();\n",
     "    asked_ = true;\n    if (epoch_) return BeginEpochAnew();\n", SOURCE_TESTS),
    ("keep what an answer without an end brought", "src/stream/hold_back.cc",
     "  for (auto it = held_.begin(); unproven_ > 0;) {\n",
     "  for (auto it = held_.begin(); unproven_ > held_.size();) {\n", SOURCE_TESTS),
    ("replay out of turn", SOURCE,
     "  if (ask != Ask::kStatus && hooks_.take_turn && !hooks_.take_turn()) {\n", "  if (false) {\n"),
    ("sleep through a turn", SOURCE,
     "  SendRequest(request_.ask);\n  NoteState();\n", "  NoteState();\n"),
    ("believe in numbers that nobody can replay", SOURCE,
     "    if (!can_replay_) {\n      SkipTo(", "    if (!can_replay_) {\n      if (applied_ && !unproven_) {\n"
     "        next_ = hold_back_.first_seq().value_or(next_);\n        seen_next_ = std::max(seen_next_, next_);\n"
     "        ApplyHeld();\n        continue;\n      }\n      SkipTo("),
    ("give a legacy snapshot another number", "src/stream/replay_responder.cc",
     "    out.push_back({answer.snapshot->status.next_seq, parts[part]});\n",
     "    out.push_back({answer.snapshot->status.next_seq + 1, parts[part]});\n"),
    ("ask without pause", SOURCE,
     "  if (fruitless_ >= kMaxTries && now_ms_ < retry_due_ms_) return false;\n", "", SOURCE_TESTS),
    ("read a byte behind the end of a batch", READER,
     "  if (length > remaining()) return false;\n", "  if (length > remaining() + 1) return false;\n", "decode_fuzz"),
    ("take the smallest negative numbers for none", READER,
     "  value.kind = number < 0 ?", "  value.kind = number < -1 ?", "differential_fuzz"),
    ("read a byte behind the end of a status", EXTENSION,
     "    if (bytes_.size() < size) {\n", "    if (bytes_.size() + 1 < size) {\n", "extension_fuzz"),
    ("take a place twice", EXTENSION,
     "  return std::pair(a.tier, a.group) < std::pair(b.tier, b.group);\n",
     "  return std::pair(a.tier, a.group) <= std::pair(b.tier, b.group);\n", "extension_fuzz"),
    ("believe in any number of a reply", FRAMES,
     "  if (*seq >= kSeqLimit) return {};\n", "", "extension_fuzz"),
    ("take groups that no place has", "src/residency/snapshot_reader.cc",
     "    if (group < 0 || group > kMaxGroup) {\n", "    if (group < 0) {\n", "snapshot_fuzz"),
    ("write runs of unlike copies", "src/residency/snapshot_writer.cc",
     "    return a.entry->copies == b.entry->copies && ", "    return ", "snapshot_fuzz"),
    ("hold back one batch too many", "src/stream/hold_back.h",
     "    return held_.size() < max_batches_ &&", "    return held_.size() <= max_batches_ &&", "source_fuzz"),
    ("number batches from the other end", FRAMES,
     "(seq >> (56 - 8 * i));", "(seq >> (8 * i));", INTEROP),
    ("end a replay with its topic", "src/stream/replay_server.cc",
     "  return SendReply(client, {}, kEndSeq,", "  return SendReply(client, AsFrame(topic_), kEndSeq,", INTEROP),
    ("take four frames of a reply alone", FRAMES,
     "  const bool known_count = frames.size() == 3 || frames.size() == 4;\n",
     "  const bool known_count = frames.size() == 4;\n", RECORDED_FRAMES),
    ("tail other groups too", "src/tools/tail_filter.cc",
     "    return group && of && *of != *group;\n", "    return group && !of;\n", TAIL),
    ("relay without the tier in the topic", "router/service/relay_topic.cc",
     'std::to_string(topic.rank) + "." + topic.tier + "." +', 'std::to_string(topic.rank) + "." + "GPU" + "." +', RELAY),
    ("say not found where a method is not allowed", "router/service/http_server.cc",
     "  refusal = HttpError(405,", "  refusal = HttpError(404,", ROUTER_API),
    ("hold all up for one who does not read", "src/stream/publisher.cc",
     "  const Status status = BindsEndpoint(endpoint)",
     "  pub->SetOption(ZMQ_XPUB_NODROP, 1);\n  const Status status = BindsEndpoint(endpoint)", "fault_stall_test"),
    ("give each publisher threads of its own", "src/stream/publisher.cc",
     "  return shares_io_thread ? Context::SharedInBackground() :", "  return false ? Context::SharedInBackground() :",
     "stream_publisher_test"),
    ("read the few of many groups", "include/kvcast/group_tokens.h",
     "  const int64_t* begin() const { return size_ > kFew ?", "  const int64_t* begin() const { return false ?",
     "router_selector_test"),
    ("keep what few groups were told before", "include/kvcast/group_tokens.h",
     "    std::fill_n(few_.begin(), groups, tokens);\n", "", "router_selector_test"),
    ("describe another reply than is given", "schemas/openapi.json",
     '"description": "blocks that left the GPUs, by kind of group",\n              "type": "object"',
     '"description": "blocks that left the GPUs, by kind of group",\n              "type": "array"', ROUTER_API),
    ("give a metric no help", "router/service/metrics.cc", '"Gaps in the sequence numbers."', '""', ROUTER_API),
    ("take bodies of any size", "router/service/http_message.h", "max_body_bytes = 16 << 20", "max_body_bytes = 64 << 20",
     ROUTER_API),
    ("keep memory for each idle connection", "router/service/http_server.cc",
     "reader(limits) {}\n\n  const uint64_t id;",
     "reader(limits) { in.assign(16 << 10, 'x'); in.clear(); }\n\n  const uint64_t id;", ROUTER_API),
    ("answer otherwise than the README says", "router/service/own_api.cc", '{"degraded", degraded}',
     '{"degraded", degraded.size()}', SESSION),
    ("write an error to the console", "router/service/dashboard/dashboard.js", "});\nloop();",
     "});\nconsole.error('planted');\nloop();", DASHBOARD),
    ("tell events of all tiers", "router/service/observations.cc",
     "tiers[static_cast<size_t>(seen.tier)] &&", "tiers.size() > 0 &&", "router_service_test"),
    ("ask for events without the filters", "router/service/dashboard/dashboard.js",
     "  const reply = await ask(`v1/events?${filters}`);", "  const reply = await ask('v1/events?limit=100');", DASHBOARD),
    ("mark no worker as the chosen one", "router/service/dashboard/dashboard.js",
     "    if (candidate.name === decision.worker) line.className = 'chosen';\n", "", DASHBOARD),
]
