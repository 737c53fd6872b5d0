#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gyre/base/file.h"
#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

/// Where the virtual environments of this process's account lie on this machine: the same path on all nodes that have
/// an account of this name.
std::filesystem::path environments_of_account();

/// The text of a job's requirements. `code`: the archive of its code, open, or negative. Error(kNotFound,
/// kInvalidArgument) is a sentence for the job's user.
std::string requirements_text(const spec::PythonRequirements& requirements, int code);

/// What tells the environment of these requirements from others: their text, and what of `variables`, those of the job,
/// changes what pip makes of them: those that it names (`${NAME}`) and pip's own (`PIP_…`). Of values, which can be
/// secrets, there is a hash that costs a tenth of a second or so to try. Pure.
std::string identity_of(const std::string& requirements, const Variables& variables);

/// A virtual environment: one for each identity of requirements, account and machine. The first job makes it, and later
/// ones find it (ADR 139). A lock says who has it: whoever makes it has it alone, and jobs share it. It is whole once
/// the file `complete` is in it. For one thread.
class PythonEnvironment {
 public:
  /// `identity`: by identity_of(). `all` is made if it is missing. Error(kInvalidArgument) where it is not a folder of
  /// this account's alone; Error(kIo).
  PythonEnvironment(std::filesystem::path all, const std::string& identity);

  const std::filesystem::path& folder() const { return folder_; }
  /// For a shell of the account: makes it of the pip file `requirements`, unless it is whole. Waits while another job
  /// makes it. The Python is the one of PATH, or else the one beside `gyre_program`: whichever has Gyre. Packages of
  /// that Python are found after those of the environment. All output goes to stderr.
  std::string line_that_makes_it(const std::filesystem::path& requirements, const std::string& gyre_program) const;

  bool is_whole() const;
  /// From now on nobody removes or makes it anew, as long as a copy of fd() is open. False: it is not whole, or
  /// somebody is about to make it.
  bool hold();
  /// Negative: it is not held.
  int fd() const { return held_.get(); }
  /// Puts its programs first.
  void enter(Variables& variables) const;

  /// Removes environments of the account that nobody has, the longest unused first, while all of them have more than
  /// `most_bytes`; and what killed jobs have left half made. Does not throw.
  void make_room(std::uint64_t most_bytes) const;

 private:
  std::filesystem::path lock_of(const std::filesystem::path& folder) const;

  std::filesystem::path all_;
  std::filesystem::path folder_;
  UniqueFd held_;
};

/// Why it could not be made, of what the line above has written: pip's own last words. Empty: nothing was said.
std::string words_of_pip(std::string_view output);

}  // namespace gyre::jobs::node::internal
