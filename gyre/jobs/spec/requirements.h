#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gyre::jobs::spec {

/// Why nodes cannot make an environment of a pip requirements file from its text alone, or would keep an outdated one,
/// which is known by that text: it names a file, a folder, or another requirements file. "line 3, '-e .', …"; nothing
/// where all that it names comes from an index or an address. --find-links and the like may name absolute paths. Pure.
std::optional<std::string> refusal_of_requirements(std::string_view text);

}  // namespace gyre::jobs::spec
