#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/process.h"
#include "gyre/jobs/drivers/ssh/options.h"

namespace gyre::jobs::drivers::ssh {

/// A run of OpenSSH's client, whose words come into files.
struct Session {
  Process process;
  std::filesystem::path out;
  std::filesystem::path error;
};

/// OpenSSH's own client, with the user's configuration, and with the host keys that the cluster names. What it asks of
/// hosts it asks under the names that the cluster has for them. Not thread-safe.
class Client {
 public:
  explicit Client(const SshOptions& options);

  /// Starts `command` on the host, with `input` as its stdin. `out` and `error`, whose names begin with `words`, are
  /// overwritten.
  Session start(const std::string& host, const std::string& command, const std::filesystem::path& input,
                const std::filesystem::path& words) const;
  /// The fingerprint that the host shows now. Error(kTimeout) with ssh's words where it shows none.
  std::string fingerprint_of(const std::string& host) const;
  /// Makes start() accept the key that the cluster names, where the host shows it. Error(kAuthentication) where it
  /// shows another; Error(kTimeout) where it shows none. Asks once.
  void pin(const std::string& host);

 private:
  std::vector<std::string> command_for(const std::string& host, const std::filesystem::path& known,
                                       const std::vector<std::string>& options) const;
  std::string learn(const std::string& host, const std::filesystem::path& known) const;
  std::filesystem::path known(const std::string& host) const;

  const SshOptions options_;
  const std::vector<std::string> environment_;
};

/// What ssh has said at last, for a sentence.
std::string last_words(const std::filesystem::path& file);
std::string text_of(const std::filesystem::path& file);

}  // namespace gyre::jobs::drivers::ssh
