#include "gyre/data/internal/open_files.h"

#include <algorithm>

namespace gyre::data::internal {

std::shared_ptr<const ReadableFile> OpenFiles::find(std::size_t number) {
  const auto found = std::ranges::find(files_, number, &Files::value_type::first);
  if (found == files_.end()) return nullptr;
  files_.splice(files_.end(), files_, found);
  return found->second;
}

std::unique_ptr<const ReadableFile> OpenFiles::open_once(std::size_t number, const std::string& name) {
  auto opened = open_(name);
  versions_.check(number, *opened);
  return opened;
}

std::shared_ptr<const ReadableFile> OpenFiles::get(std::size_t number, const std::string& name) {
  {
    const MutexLock lock(mutex_);
    if (auto file = find(number)) return file;
  }
  std::shared_ptr<const ReadableFile> opened = open_once(number, name);
  std::shared_ptr<const ReadableFile> closed;  // Without the mutex.
  const MutexLock lock(mutex_);
  if (auto file = find(number)) return file;  // Another thread was faster.
  if (files_.size() == kMost) {
    closed = std::move(files_.front().second);
    files_.pop_front();
  }
  files_.emplace_back(number, opened);
  return opened;
}

}  // namespace gyre::data::internal
