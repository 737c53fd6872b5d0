#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::spec {

inline constexpr std::uint64_t kMostRequirementsBytes = std::uint64_t{64} << 10;

/// Why nodes cannot make an environment of a pip requirements file from its text alone, or would keep an outdated one,
/// which is known by that text: it names a file, a folder, or another requirements file, or is not text. "line 3, '-e
/// .', …"; nothing where all that it names comes from an index or an address. --find-links and the like may name
/// absolute paths. Pure.
std::optional<std::string> refusal_of_requirements(std::string_view text);

/// The lines of a file, and the file of lines: a text of its own for other lines, whatever ends them.
std::vector<std::string> requirement_lines(std::string_view text);
std::string requirements_text(const std::vector<std::string>& lines);

}  // namespace gyre::jobs::spec
