// SPDX-License-Identifier: MIT
#include "support/ref_backend.h"

namespace nibble::test {

template class RefBackend<double>;
template class RefBackend<std::complex<double>>;

}  // namespace nibble::test
