#pragma once

#include <memory>
#include <utility>

#include "gyre/base/file.h"

namespace gyre::group {

/// How a rank tells `gyre run` what it will want to know when the job fails: which rank was the cause. The launcher
/// reads the lines in the order in which they were written, so each is written before anybody else can notice. Ranks
/// are named as the launcher does. A launcher that is gone, or that has not read the lines of thousands of groups, does
/// not miss one: none of the functions waits or fails. Thread-safe; see docs/guide/launchers.md for the lines.
class LauncherPipe {
 public:
  explicit LauncherPipe(UniqueFd write_end) : write_end_(std::move(write_end)) {}

  /// A copy of the descriptor that the launcher left this process; nothing if it is no such pipe (any more: a program
  /// between the launcher and us may have closed it, and the number may be another file's now).
  static std::shared_ptr<LauncherPipe> inherited(int descriptor);

  /// This process, which is that rank, is about to end.
  void ends(int rank) const;
  /// A group has failed because of that rank.
  void failed(int rank) const;
  /// That rank is the first to leave a group in good order.
  void left(int rank) const;
  /// From now on the group goes on when that rank dies.
  void may_be_lost(int rank) const;

 private:
  void tell(const char* word, int rank) const;

  UniqueFd write_end_;
};

}  // namespace gyre::group
