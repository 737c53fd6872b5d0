#include "gyre/jobs/node/internal/failure_causes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <utility>

#include "gyre/base/process.h"
#include "gyre/base/reach.h"
#include "gyre/jobs/node/internal/needs_root.h"
#include "gyre/jobs/node/internal/node_probe.h"
#include "gyre/jobs/node/internal/unreachable.h"
#include "gyre/jobs/node/internal/waiting_launcher.h"
#include "gyre/jobs/node/remote_shell.h"
#include "gyre/launch/hosts.h"

namespace gyre::jobs::node::internal {

using orders::WorkOrder;

AttemptEnds failure_of_job(const WorkOrder& order, const NodeFolders& folders, const Variables& variables,
                           const ProcessSet::Ended& ended) {
  const std::string& node = order.here().id;
  const int exit_code = ended.exit_code;
  const std::string not_started = text_noted(folders.start_failure(), ::geteuid());
  if (exit_code == launch::kUnreachableExitCode && !not_started.empty())
    return start_failure(order, fmt::format("gyre run on node {} {}", node, not_started));
  std::map<std::string, std::string> details = {{"node", node}};
  if (ended.record.contains("first_failed_rank") && ended.record["first_failed_rank"].is_number()) {
    details["rank"] = ended.record["first_failed_rank"].dump();
  }
  // The job's process may itself have started the ranks.
  const std::string rank = text_noted(folders.private_to_job() / kFailedRankNote, ::geteuid());
  if (!rank.empty() && rank.find_first_not_of("0123456789") == std::string::npos) details["rank"] = rank;
  std::string how = fmt::format("exit code {}", exit_code);
  if (exit_code > 128 && exit_code <= 128 + SIGRTMAX) {
    details["signal"] = signal_name(exit_code - 128);
    how += fmt::format(" ({})", details["signal"]);
  }
  if (exit_code == 127) how += ", by which a shell says that a command was not found";
  how += obstacles(program_paths(order.job), variables, order, exit_code);
  const std::string noted = text_noted(folders.private_to_job() / kFailureNote, ::geteuid());
  if (!noted.empty()) how += "; " + noted;
  return {exit_code, resources::ResourceError{resources::error_code::kJobFailed,
                                              fmt::format("the job's command failed on node {} with {}", node, how),
                                              std::move(details)}};
}

std::string obstacles(const std::vector<std::string>& lines, Variables variables, const WorkOrder& order,
                      int exit_code) {
  const JobUser user{own_user(), user_name(::geteuid())};
  for (const spec::SecretVariable& secret : order.job.secrets) variables.erase(secret.name);
  auto sentence = unreachable(lines, variables, user);
  // What a shell, or Python without its modules, ends with.
  const bool may_be_another = exit_code == 1 || exit_code == 126 || exit_code == 127;
  if (!sentence && may_be_another && !lines.empty()) sentence = passed_over(lines.front(), variables, user);
  return sentence ? "; " + *sentence : "";
}

std::string wish_for_root(const std::string& line, const Variables& variables, const WorkOrder& order,
                          const NodeFolders& folders) {
  const auto sentence = [&](const std::string& manager, const std::string& where) {
    return fmt::format(
        "calls {}{}, which needs root, and runs as user '{}'; have an administrator install the packages on the nodes, "
        "or use the cluster's setup task (`gyre cluster create --setup-task LINE`), which runs as root if the server "
        "does",
        manager, where, user_name(::geteuid()));
  };
  Variables known = variables;
  for (const char* name : {"EUID", "UID"}) known[name] = fmt::format("${}", name);  // The shell's, by which lines ask.
  const std::string expanded = expand(line, known).text;
  if (const auto manager = package_manager_for_root(expanded)) return sentence(*manager, "");
  for (const std::string& script : scripts_of(expanded)) {
    const std::string text = beginning_of_file(script, work_folder(order, folders));
    const bool other_language =
        text.starts_with("#!") && text.substr(0, text.find('\n')).find("sh") == std::string::npos;
    if (other_language || text.find('\0') != std::string::npos) continue;
    if (const auto manager = package_manager_for_root(text)) return sentence(*manager, fmt::format(" (in {})", script));
  }
  return "";
}

}  // namespace gyre::jobs::node::internal
