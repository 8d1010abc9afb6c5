// SPDX-License-Identifier: MIT
#include "job/keep/keep_choices.h"

#include "core/error.h"

namespace nibble {

KeepShare KeepChoices::share_of(bool teaches) const {
  if (!used()) return KeepShare();
  return KeepShare(share.value_or(teaches ? 0.5 : 1.0));
}

void KeepChoices::check(bool teaches) const {
  if (!used()) {
    if (!teaches) {
      throw_usage(
          "nothing to train on: give --train-data (rows that are taught), --keep (rows on which "
          "the model stays as its teacher is), or both");
    }
    if (!teacher.empty() || share) {
      throw_usage("{} is about rows that are kept: name some with --keep",
                  teacher.empty() ? "--keep-share" : "--teacher");
    }
    return;
  }
  if (!share) return;
  if (!teaches && *share != 1) {
    throw_usage("--keep-share {}: without --train-data every row is a kept one; leave it out",
                *share);
  }
  if (teaches && (*share < 1e-6 || *share > 1 - 1e-6)) {
    throw_usage("--keep-share {}: with --train-data it lies between 0 and 1", *share);
  }
}

}  // namespace nibble
