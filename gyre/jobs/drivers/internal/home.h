#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace gyre::jobs::drivers {

/// What a driver keeps of its attempts, in the service's own folder. Names only.
class Home {
 public:
  using Path = std::filesystem::path;

  /// `engine`: the kind of driver, which is part of some names.
  explicit Home(Path folder, std::string engine = "engine") : folder_(std::move(folder)), engine_(std::move(engine)) {}
  const Path& folder() const { return folder_; }
  Path key() const { return folder_ / "agents.key"; }
  Path name() const { return folder_ / "name"; }  ///< Of the service, as text.
  Path port() const { return folder_ / "port"; }  ///< Where the service listened last, as text.
  Path attempts() const { return folder_ / "attempts"; }
  Path attempt(const std::string& name) const { return attempts() / name; }
  Path records(const std::string& name) const { return attempt(name) / "records"; }
  Path holding(const std::string& name) const { return attempt(name) / (engine_ + "_job"); }  ///< Its id, as text.
  Path begun(const std::string& name) const { return attempt(name) / "begun"; }  ///< Once the engine runs it.

 private:
  Path folder_;
  std::string engine_;
};

}  // namespace gyre::jobs::drivers
