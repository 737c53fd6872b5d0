#pragma once

#include <filesystem>
#include <string>

#include "gyre/base/file.h"

namespace gyre::app {

/// The folder of a service that lives for one job: `chosen`, or a new one, which goes with this object. A new one is
/// short, because sockets are made in it, and the jobs' user can reach its own part of it. One that a killed program
/// has left goes when the next object is made, once the nodes in it have ended.
class ServiceFolder {
 public:
  /// UsageError where `chosen` cannot be a folder; Error(kIo).
  explicit ServiceFolder(const std::string& chosen);
  ~ServiceFolder();
  ServiceFolder(const ServiceFolder&) = delete;
  ServiceFolder& operator=(const ServiceFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Something in it is the user's.
  void keep();

 private:
  void make_chosen() const;

  bool kept_;
  std::filesystem::path path_;
  UniqueFd mark_;  // Of a folder that is to go: locked as long as this program lives.
};

}  // namespace gyre::app
