#include "gyre/jobs/service/internal/readers.h"

#include <utility>

#include "gyre/base/error.h"

namespace gyre::jobs::service {

std::unique_ptr<Ledger> Readers::take_free() {
  const MutexLock lock(mutex_);
  if (free_.empty()) return nullptr;
  std::unique_ptr<Ledger> lent = std::move(free_.back());
  free_.pop_back();
  return lent;
}

Readers::Loan Readers::borrow() {
  try {
    std::unique_ptr<Ledger> lent = take_free();
    if (!lent) {
      lent = std::make_unique<Ledger>(catalog::Catalog::open_to_read(catalog_), writer_.code.folder().parent_path(),
                                      null_logger());
    }
    const MutexLock lock(lent->mutex);
    lent->catalog.begin_reading();
    return {*this, std::move(lent)};
  } catch (const Error&) {
    return {*this, nullptr};  // A disk that was full when the service started, or no descriptors.
  }
}

void Readers::take_back(std::unique_ptr<Ledger> lent) {
  if (!lent) return;
  try {
    const MutexLock lock(lent->mutex);
    lent->catalog.end_reading();
  } catch (const Error&) {
    return;  // The next one gets another.
  }
  const MutexLock lock(mutex_);
  if (free_.size() < kMostKept) free_.push_back(std::move(lent));
}

}  // namespace gyre::jobs::service
