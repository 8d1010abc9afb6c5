// SPDX-License-Identifier: MIT
// Conversations in which it must stay clear who is who: questions about the model, about the asker
// (with a name given before, or none) and about other things, one after the other.
#pragma once
#include <string>
#include <vector>

#include "mini/corpus.h"

namespace nibble {

// User and assistant in turn, the reply last; training phrasings and values alone. Questions about
// the model are answered with `identity`.
std::vector<std::string> make_conversation(const IdentityTexts& identity, Draw& draw);

}  // namespace nibble
