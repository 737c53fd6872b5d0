#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/client/session.h"

namespace gyre::jobs::client {

/// A file of a job's log directory.
struct LogFile {
  std::string name{};
  std::string identity{};  ///< Another one where a file of that name is a new one.
  std::uint64_t bytes = 0;
};

struct LogListing {
  std::vector<LogFile> files{};
  int attempts = 0;       ///< That the job has had, with the one that runs; 0 where that is not known.
  bool complete = false;  ///< Nothing comes any more, as was known before the files were listed.
};

/// Where the logs of a job are read.
class LogSource {
 public:
  virtual ~LogSource() = default;
  /// Nothing where the job has no log directory yet.
  virtual std::optional<LogListing> list() = 0;
  virtual bool job_has_ended() = 0;
  /// The next bytes of a file, at most `most`; none where there are none.
  virtual std::string read(const std::string& name, std::uint64_t from, std::uint64_t most) = 0;
};

/// Those of a job server, across its restarts as far as the session's patience goes.
class ServerLogs final : public LogSource {
 public:
  ServerLogs(Session& session, resources::JobName job) : session_(session), job_(std::move(job)) {}

  std::optional<LogListing> list() override;
  bool job_has_ended() override;
  std::string read(const std::string& name, std::uint64_t from, std::uint64_t most) override;

 private:
  Session& session_;
  const resources::JobName job_;
};

/// Those in a folder of this machine, which a job may write to: only regular files are opened, and no link.
class FolderLogs final : public LogSource {
 public:
  /// `folder`: empty as long as it is not known. `ended`: whether nothing comes any more.
  FolderLogs(std::function<std::filesystem::path()> folder, std::function<bool()> ended)
      : folder_(std::move(folder)), ended_(std::move(ended)) {}

  std::optional<LogListing> list() override;
  bool job_has_ended() override { return ended_(); }
  std::string read(const std::string& name, std::uint64_t from, std::uint64_t most) override;

 private:
  const std::function<std::filesystem::path()> folder_;
  const std::function<bool()> ended_;
  std::filesystem::path listed_;  ///< What the last listing is of.
};

}  // namespace gyre::jobs::client
