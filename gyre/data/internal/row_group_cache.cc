#include "gyre/data/internal/row_group_cache.h"

#include <algorithm>

namespace gyre::data::internal {
namespace {

/// Arrow asks for memory on the thread that reads; this says for what.
thread_local bool this_thread_reads_ahead = false;

class ReadingAhead {
 public:
  ReadingAhead() { this_thread_reads_ahead = true; }
  ~ReadingAhead() { this_thread_reads_ahead = false; }
  ReadingAhead(const ReadingAhead&) = delete;
  ReadingAhead& operator=(const ReadingAhead&) = delete;
};

bool is_damage(const Error& error) {
  return error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported;
}

}  // namespace

RowGroupCache::RowGroupCache(const parquet::Interface& arrow, std::shared_ptr<MemoryBudget> budget,
                             std::uint64_t most_bytes)
    : budget_(std::move(budget)), most_bytes_(most_bytes), memory_(arrow, *this) {}

bool RowGroupCache::try_reserve(std::uint64_t bytes) {
  std::uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (used > most_bytes_ || bytes > most_bytes_ - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  if (!budget_) return true;
  try {
    budget_->reserve(bytes);
    return true;
  } catch (const Error&) {
    used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
}

bool RowGroupCache::reserve(std::uint64_t bytes) {
  while (!try_reserve(bytes)) {
    if (bytes > most_bytes_ || !evict()) return false;
  }
  return true;
}

void RowGroupCache::release(std::uint64_t bytes) {
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  if (budget_) budget_->release(bytes);
}

bool RowGroupCache::evict() {
  std::shared_ptr<Entry> oldest;  // Destroyed without the mutex.
  const MutexLock lock(mutex_);
  auto found = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!it->second->group || it->second->users > 0) continue;
    if (it->second->unused && this_thread_reads_ahead) continue;
    if (found == entries_.end() || it->second->last_use < found->second->last_use) found = it;
  }
  if (found == entries_.end()) return false;
  oldest = std::move(found->second);
  entries_.erase(found);
  return true;
}

void RowGroupCache::with(const RowGroupName& name, const Load& load, const std::function<void(const RowGroup&)>& use,
                         const std::function<void()>& meanwhile) {
  std::shared_ptr<Entry> entry = acquire(name, load, meanwhile);
  const auto leave = [&] {
    MutexLock lock(mutex_);
    --entry->users;
    lock.unlock();
    entry.reset();  // Which gives back its memory where it has left the cache: first that, then one user less.
    lock.lock();
    --users_;
    lock.unlock();
    changed_.notify_all();
  };
  try {
    use(*entry->group);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

std::shared_ptr<RowGroupCache::Entry> RowGroupCache::acquire(const RowGroupName& name, const Load& load,
                                                             const std::function<void()>& meanwhile) {
  MutexLock lock(mutex_);
  for (bool waited = false;; waited = true) {
    const auto found = entries_.find(name);
    if (found != entries_.end()) {
      const std::shared_ptr<Entry> entry = found->second;
      if (entry->damage) throw Error(*entry->damage);
      if (entry->group) {
        add_user(*entry);
        return entry;
      }
      if (!waited && meanwhile) {
        lock.unlock();
        meanwhile();
        lock.lock();
        continue;
      }
    } else if (alone_ == 0) {
      const auto entry = std::make_shared<Entry>();
      entries_.emplace(name, entry);
      ++loading_;
      ++loads_;
      lock.unlock();
      try {
        fill(*entry, load);
      } catch (...) {
        lock.lock();
        if (!entry->damage) entries_.erase(name);
        lock.unlock();
        changed_.notify_all();
        throw;
      }
      return entry;
    }
    changed_.wait(mutex_);
  }
}

void RowGroupCache::add_user(Entry& entry) {
  ++entry.users;
  ++users_;
  entry.last_use = ++uses_;
  entry.unused = false;
}

bool RowGroupCache::read_ahead(const RowGroupName& name, const Load& load) {
  const auto entry = std::make_shared<Entry>();
  {
    const MutexLock lock(mutex_);
    if (loads_ < ahead_from_ || alone_ > 0 || !entries_.emplace(name, entry).second) return false;
    ++loading_;
  }
  std::optional<RowGroup> group;
  std::optional<Error> failure;
  try {
    const ReadingAhead ahead;
    group = load();
  } catch (const std::exception& exception) {
    failure = as_error(exception);
  }
  {
    const MutexLock lock(mutex_);
    --loading_;
    if (group) {
      entry->group = std::move(group);
      entry->last_use = ++uses_;
      entry->unused = true;
    } else if (is_damage(*failure)) {
      entry->damage = failure;
    } else {
      entries_.erase(name);
      if (failure->code() == ErrorCode::kResourceExhausted) pause_reading_ahead();
    }
  }
  changed_.notify_all();
  return true;
}

void RowGroupCache::announce(const RowGroupName& name, const std::function<void()>& announce) {
  const MutexLock lock(mutex_);
  if (!entries_.contains(name)) announce();
}

void RowGroupCache::pause_reading_ahead() {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 20;
  ahead_from_ = loads_ + pause_;
  pause_ = std::min(2 * pause_, kLongest);
}

void RowGroupCache::fill(Entry& entry, const Load& load) {
  std::optional<RowGroup> group;
  std::optional<Error> failure;
  bool alone = false;
  try {
    group = load();
  } catch (const std::exception& exception) {
    failure = as_error(exception);
    alone = failure->code() == ErrorCode::kResourceExhausted;
  }
  const auto finish = [&] {
    const MutexLock lock(mutex_);
    if (failure && is_damage(*failure)) entry.damage = failure;
    if (group) {
      entry.group = std::move(group);
      add_user(entry);
    }
    --loading_;
  };
  if (alone) {
    failure.reset();
    try {
      group = load_alone(load);
    } catch (const std::exception& exception) {
      failure = as_error(exception);
    }
  }
  finish();
  changed_.notify_all();
  if (failure) throw Error(*failure);
}

RowGroup RowGroupCache::load_alone(const Load& load) {
  {
    MutexLock lock(mutex_);
    ++alone_;
    --loading_;
    pause_reading_ahead();
    while (loading_ > 0) changed_.wait(mutex_);
    ++loading_;
    // New row groups are not read from here on; those that are there are left by their users, and none comes back.
    std::map<RowGroupName, std::shared_ptr<Entry>> left;
    std::erase_if(entries_, [&](auto& entry) {
      if (!entry.second->group) return false;
      left.insert(entry);
      return true;
    });
    lock.unlock();
    changed_.notify_all();
    lock.lock();
    while (users_ > 0) changed_.wait(mutex_);
  }
  const auto finish = [this] {
    const MutexLock lock(mutex_);
    --alone_;
  };
  try {
    RowGroup group = load();
    finish();
    return group;
  } catch (...) {
    finish();
    throw;
  }
}

}  // namespace gyre::data::internal
