// SPDX-License-Identifier: MIT
// What a process makes sure of before anything else: its three streams exist, and signals end it
// without leaving half-written files.
#pragma once

namespace nibble {

// Closed descriptors 0 to 2 become /dev/null: else the next file opened would be one of them, and
// log lines would be written into weights.
void open_missing_streams();
// SIGINT, SIGTERM, SIGHUP end the process, unless whoever started it had them ignored (nohup).
// Writing to a pipe without a reader, or beyond a limit of file size, fails instead of killing.
void take_signals();

}  // namespace nibble
