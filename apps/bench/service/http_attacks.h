// The attacks of HTTP clients on a router. The requests of an attack cost the router as much time
// or memory as possible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "apps/support/forked_process.h"

namespace kvcast::tools {

struct HttpAttack {
  std::string_view name;  // for the command line
  std::string_view summary;
  int connections = 4;
  // The bytes that each connection sends repeatedly, without waiting for answers.
  std::string (*bytes)() = nullptr;
  // A request before the attack. The attack begins after its answer. nullptr: no request.
  std::string (*preparation)() = nullptr;
  // The address from which the attacker connects. The other clients use 127.0.0.1.
  const char* address = "127.0.0.1";
  // True: each connection sends its bytes once, and then stays open until the router closes it.
  bool sends_once = false;
  // False: the connections do not read the answers.
  bool reads = true;
};

std::span<const HttpAttack> HttpAttacks();

// nullptr: no attack has this name.
const HttpAttack* FindHttpAttack(std::string_view name);

// The totals of all connections of one attack.
struct HttpAttackTotals {
  uint64_t bytes = 0;           // sent by the attacker
  uint64_t connections = 0;     // opened connections, including those that the router closed
  uint64_t answered_bytes = 0;  // received by the attacker
};

// The order to attack the router at 127.0.0.1:`port` with HttpAttacks()[attack].
struct HttpAttackOrder {
  uint32_t attack = 0;
  int port = 0;
};

// The process of the attacking clients. For each HttpAttackOrder on `in`: attacks until the next
// byte on `in`, and then writes a HttpAttackTotals. Ends when `in` is closed. Returns the exit
// code.
int AttackOverHttp(const PipeEnd& in, const PipeEnd& out);

}  // namespace kvcast::tools
