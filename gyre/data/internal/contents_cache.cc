#include "gyre/data/internal/contents_cache.h"

#include <algorithm>

namespace gyre::data::internal {

void FileContents::set_places(std::vector<RecordPlace> places) {
  reserved_.emplace(budget_.get(), places.capacity() * sizeof(RecordPlace));
  places_ = std::move(places);
}

void FileContents::forget() {
  bytes.reset();
  places_ = {};
  reserved_.reset();
}

std::shared_ptr<const FileContents> ContentsCache::held(std::shared_ptr<FileContents> contents) {
  const FileContents* const address = contents.get();
  return {address, [cache = shared_from_this(), contents = std::move(contents)](const FileContents* /*same*/) mutable {
            {
              const MutexLock lock(cache->mutex_);
              contents.reset();
            }
            cache->changed_.notify_all();
          }};
}

std::shared_ptr<FileContents> ContentsCache::evict() {
  for (const std::size_t file : uses_) {
    const auto found = entries_.find(file);
    // Others get it, and let go of it, under the mutex alone, so nobody holds it when this is the only one.
    if (found->second.contents.use_count() > 1) continue;
    std::shared_ptr<FileContents> evicted = std::move(found->second.contents);
    used_bytes_ -= evicted->size_bytes();
    uses_.erase(found->second.use);
    entries_.erase(found);
    return evicted;
  }
  return nullptr;
}

std::shared_ptr<FileContents> ContentsCache::make_room() {
  std::shared_ptr<FileContents> last;
  MutexLock lock(mutex_);
  while (used_bytes_ + usual_bytes_ > most_bytes_) {
    std::shared_ptr<FileContents> evicted = evict();
    if (!evicted) break;
    std::swap(last, evicted);
    lock.unlock();
    evicted.reset();
    lock.lock();
  }
  return last;
}

void ContentsCache::become_alone() {
  --loading_;
  changed_.notify_all();  // Another one that is alone may wait for this thread.
  while (alone_) changed_.wait(mutex_);
  alone_ = true;
}

std::shared_ptr<FileContents> ContentsCache::wait_for_memory() {
  for (;;) {
    if (auto evicted = evict()) return evicted;
    if (loading_ == 0 && uses_.empty()) return nullptr;
    changed_.wait(mutex_);
  }
}

std::shared_ptr<FileContents> ContentsCache::read_with_room(const Load& load, Shortage shortage, bool& alone) {
  std::shared_ptr<FileContents> contents = make_room();
  for (bool last = false;;) {
    if (!contents) contents = std::make_shared<FileContents>(budget_);
    contents->forget();
    try {
      load(*contents);
      return contents;
    } catch (const Error& error) {
      contents.reset();
      if (error.code() != ErrorCode::kResourceExhausted || last) throw;
    }
    const MutexLock lock(mutex_);
    if (!alone) {
      contents = evict();
      if (contents) continue;
      if (shortage == Shortage::kFail) {
        last = true;
        continue;
      }
      become_alone();
      alone = true;
    }
    contents = wait_for_memory();
    last = !contents;
  }
}

std::shared_ptr<const FileContents> ContentsCache::read(std::size_t file, const Load& load, Shortage shortage) {
  std::shared_ptr<FileContents> contents;
  std::shared_ptr<const FileContents> result;
  std::optional<Error> failure;
  bool alone = false;
  try {
    contents = read_with_room(load, shortage, alone);
  } catch (const std::exception& exception) {
    failure = as_error(exception);
  }
  {
    const MutexLock lock(mutex_);
    if (alone) {
      alone_ = false;
    } else {
      --loading_;
    }
    if (contents) {
      Entry& entry = entries_.at(file);
      usual_bytes_ = std::max(usual_bytes_, contents->size_bytes());
      used_bytes_ += contents->size_bytes();
      result = held(contents);
      entry.contents = std::move(contents);
      entry.use = uses_.insert(uses_.end(), file);
    } else if (failure->code() == ErrorCode::kCorruptData) {
      entries_.at(file).damage = failure;
    } else {
      entries_.erase(file);
    }
  }
  changed_.notify_all();
  if (failure) throw Error(*failure);
  return result;
}

std::shared_ptr<const FileContents> ContentsCache::get(std::size_t file, const Load& load,
                                                       const std::function<void()>& meanwhile) {
  MutexLock lock(mutex_);
  for (bool waited = false;; waited = true) {
    const auto found = entries_.find(file);
    if (found == entries_.end() && !alone_) {
      entries_.emplace(file, Entry{});
      ++loading_;
      lock.unlock();
      return read(file, load, Shortage::kWait);
    }
    if (found != entries_.end() && found->second.damage) throw Error(*found->second.damage);
    if (found != entries_.end() && found->second.contents) {
      uses_.splice(uses_.end(), uses_, found->second.use);
      return held(found->second.contents);
    }
    if (!waited && meanwhile) {
      lock.unlock();
      meanwhile();
      lock.lock();
      continue;
    }
    changed_.wait(mutex_);
  }
}

bool ContentsCache::read_ahead(std::size_t file, const Load& load) {
  {
    const MutexLock lock(mutex_);
    if (alone_ || !entries_.emplace(file, Entry{}).second) return false;
    ++loading_;
  }
  try {
    static_cast<void>(read(file, load, Shortage::kFail));
  } catch (const Error&) {
    return true;  // Damage is remembered; memory that is short now may not be later.
  }
  return true;
}

bool ContentsCache::knows(std::size_t file) {
  const MutexLock lock(mutex_);
  return entries_.contains(file);
}

void ContentsCache::announce(std::size_t file, const std::function<void()>& announce) {
  const MutexLock lock(mutex_);
  if (!entries_.contains(file)) announce();
}

}  // namespace gyre::data::internal
