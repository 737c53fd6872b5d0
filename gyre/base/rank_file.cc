#include "gyre/base/rank_file.h"

#include <string>

namespace gyre {

bool has_rank_mark(const std::filesystem::path& path) { return path.string().find(kRankMark) != std::string::npos; }

std::filesystem::path file_of_rank(const std::filesystem::path& path, int rank) {
  std::string file = path.string();
  const std::size_t mark = file.find(kRankMark);
  if (mark != std::string::npos) file.replace(mark, kRankMark.size(), std::to_string(rank));
  return file;
}

}  // namespace gyre
