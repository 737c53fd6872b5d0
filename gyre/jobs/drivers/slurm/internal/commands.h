#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"

namespace gyre::jobs::drivers::slurm {

/// A job as squeue shows it.
struct ListedJob {
  std::string id;
  std::string state;   ///< "PENDING", "RUNNING", …
  std::string reason;  ///< Why it waits, or why it ended.
  std::string nodes;   ///< "n[1-2]"
  std::string comment;
  std::string name;

  bool operator==(const ListedJob&) const = default;
};

/// Nothing of the job runs any more, and nothing will.
bool is_over(const std::string& state);
/// The engine took the nodes away, and would give them again: the attempt counts as lost with its nodes.
bool is_loss(const std::string& state);

/// From what squeue prints with kListFormat. Lines that cannot be read are left out.
std::vector<ListedJob> parse_list(const std::string& text);
inline constexpr const char* kListFormat = "%i|%T|%r|%N|%k|%j";

/// sbatch, squeue and scancel. Each call runs one of them and waits for it. Error(kInvalidArgument) when Slurm refuses;
/// any other Error when it cannot be asked at the moment. Thread-safe.
class Commands {
 public:
  /// `environment`: of the commands, and through sbatch of the jobs.
  explicit Commands(node::Variables environment) : environment_(std::move(environment)) {}

  /// The job's id.
  std::string submit(const std::vector<std::string>& arguments) const;
  /// All jobs of our user that Slurm remembers.
  std::vector<ListedJob> list() const;
  /// One that is over already is fine.
  void cancel(const std::string& id) const;

 private:
  std::string run(std::vector<std::string> command) const;

  node::Variables environment_;
};

}  // namespace gyre::jobs::drivers::slurm
