// Writes single event fields.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/event.h"
#include "src/wire/layout.h"
#include "src/wire/writer.h"

namespace kvcast::wire {

void WriteHash(Writer& out, const BlockHash& hash);
// True if the field would be written as nil. REQUIRES: the event has the field.
bool IsNil(const BlockStored& event, Field field);
bool IsNil(const BlockRemoved& event, Field field);
bool IsNil(const AllBlocksCleared& event, Field field);
void WriteField(Writer& out, const BlockStored& event, Field field);
void WriteField(Writer& out, const BlockRemoved& event, Field field);
void WriteField(Writer& out, const AllBlocksCleared& event, Field field);

}  // namespace kvcast::wire
