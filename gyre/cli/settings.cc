#include "gyre/cli/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "gyre/cli/suggest.h"

namespace gyre::cli {

const std::vector<std::string>& known_settings() {
  static const std::vector<std::string> kNames = {
      // Of users: docs/guide/settings.md.
      "GYRE_ALLOW", "GYRE_BIND", "GYRE_BUILT_IMAGES", "GYRE_COLLECTIVE_TIMEOUT_SECONDS", "GYRE_CONTAINERS",
      "GYRE_CONTAINER_PROGRAM", "GYRE_DEADLOCK_SECONDS", "GYRE_DEVICES_PER_RANK", "GYRE_EXPLAIN_FILE",
      "GYRE_FUSION_BYTES", "GYRE_INTERFACES", "GYRE_KERAS_2018", "GYRE_KEY_FILE", "GYRE_LOCAL_RANK", "GYRE_LOCAL_SIZE",
      "GYRE_LOG_LEVEL", "GYRE_PYARROW", "GYRE_PYTHON", "GYRE_RANK", "GYRE_SERVER", "GYRE_SERVERS", "GYRE_SIZE",
      "GYRE_STAGE_DIR", "GYRE_STALL_FAILURE_SECONDS", "GYRE_STALL_WARNING_SECONDS", "GYRE_START_TIMEOUT_SECONDS",
      "GYRE_TIMELINE", "GYRE_TIMELINE_MARK_CYCLES", "GYRE_TLS", "GYRE_TOKEN", "GYRE_WORKSPACE",
      // From one of our processes to another.
      "GYRE_ENDED_FD", "GYRE_FAILED_RANK_FILE", "GYRE_FAILURE_FD", "GYRE_JOB_ATTEMPT", "GYRE_JOB_CONTAINER",
      "GYRE_JOB_FOLDER", "GYRE_JOB_METRICS", "GYRE_JOB_NODE", "GYRE_JOB_SHELL", "GYRE_JOB_SHELLS", "GYRE_JOB_TIMELINE",
      "GYRE_KEY_FD", "GYRE_LAUNCH", "GYRE_METRICS_FD", "GYRE_MISSING_OUTPUT_FILE", "GYRE_PROGRAM", "GYRE_REMOTE_SHELL",
      "GYRE_RENDEZVOUS", "GYRE_RENDEZVOUS_FD", "GYRE_SHELL_FD", "GYRE_SHELL_KEY_FD", "GYRE_START_FAILURE_FILE",
      "GYRE_WORKER_KEY"};
  return kNames;
}

std::vector<std::string> unknown_settings(const std::vector<std::string>& environment) {
  std::vector<std::string> sentences;
  for (const std::string_view entry : environment) {
    const std::string name(entry.substr(0, entry.find('=')));
    // GYRE_DEV_ and GYRE_TEST_ belong to ./dev and to the tests, which run this program.
    if (!name.starts_with("GYRE_") || name.starts_with("GYRE_DEV_") || name.starts_with("GYRE_TEST_")) continue;
    if (std::ranges::find(known_settings(), name) != known_settings().end()) continue;
    const auto meant = nearest(name, known_settings());
    sentences.push_back(fmt::format("{} has no effect: Gyre has no such setting{}", name,
                                    meant ? fmt::format("; did you mean {}?", *meant) : ""));
  }
  std::ranges::sort(sentences);
  return sentences;
}

}  // namespace gyre::cli
