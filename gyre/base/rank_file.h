#pragma once

#include <filesystem>
#include <string_view>

namespace gyre {

/// In the name of a file: each rank has one of its own.
constexpr std::string_view kRankMark = "{rank}";

bool has_rank_mark(const std::filesystem::path& path);

/// "trace-3.json" for rank 3 of "trace-{rank}.json"; `path` where it has no mark.
std::filesystem::path file_of_rank(const std::filesystem::path& path, int rank);

}  // namespace gyre
