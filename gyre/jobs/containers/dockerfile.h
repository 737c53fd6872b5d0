#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::containers {

/// A Dockerfile that anybody may have written, for a builder that is root: what it may ask for is what a job's
/// container has, and nothing of the machine besides (ADR 139). Pure.
class Dockerfile {
 public:
  /// Error(kInvalidArgument): "line 3: …", of what it cannot have, or what is not a Dockerfile.
  explicit Dockerfile(std::string_view text);

  /// The images that it begins with and copies from, as it names them, each once; none for "scratch".
  const std::vector<std::string>& images() const { return images_; }
  /// The files and folders of its context that it reads, relative and without ".."; missing: any of them.
  const std::optional<std::vector<std::string>>& sources() const { return sources_; }
  /// For the builder: each instruction on a line of its own, with `ids` in the place of names of images, and `begin`,
  /// whole lines, behind each FROM.
  std::string text(const std::map<std::string, std::string>& ids, const std::string& begin) const;

 private:
  struct Instruction {
    int line = 0;
    std::string name;  ///< "RUN"
    std::vector<std::string> flags;
    std::string rest;
    std::string image;  ///< Of a FROM, or of COPY --from, where it names one.
  };

  static std::vector<Instruction> instructions_in(std::string_view text);
  void read(Instruction& instruction);
  void read_from(Instruction& instruction);
  void read_copy(Instruction& instruction);
  void add_image(Instruction& instruction, const std::string& image);
  void add_source(const std::string& source);
  bool is_stage(const std::string& name) const;
  std::string expanded(const Instruction& instruction, std::string_view text) const;

  std::vector<Instruction> instructions_;
  std::vector<std::string> images_;
  std::optional<std::vector<std::string>> sources_{std::in_place};
  std::vector<std::string> stages_;               ///< Their names, or "".
  std::map<std::string, std::string> arguments_;  ///< Of ARG before the first FROM.
};

}  // namespace gyre::jobs::containers
