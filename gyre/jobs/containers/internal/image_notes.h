#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gyre::jobs::containers::internal {

/// What podman has said of images, for later attempts: asking it costs a process. Thread-safe, among processes as well;
/// of two that note something at once, one may be forgotten.
class ImageNotes {
 public:
  /// `file`: of nobody else. `lists`: the files in which podman's storages list their images.
  ImageNotes(std::filesystem::path file, std::vector<std::filesystem::path> lists);

  /// Of all lists as they are now: each change of an image, or of a name, makes another one. Empty: there are none.
  std::string state() const;
  /// What was said of it when the lists were in this state. Nothing of the empty state.
  std::optional<std::string> find(const std::string& image, const std::string& state) const;
  /// What was said of an id, which names exactly these contents.
  std::optional<std::string> find_id(const std::string& id) const;
  /// A full disk, or another failure, forgets it. `state`: from before it was said.
  void keep(const std::string& image, const std::string& state, const std::string& said) const;
  void keep_id(const std::string& id, const std::string& said) const;

 private:
  const std::filesystem::path file_;
  const std::vector<std::filesystem::path> lists_;
};

}  // namespace gyre::jobs::containers::internal
