#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/service/internal/ledger.h"

namespace gyre::jobs::service {

/// Connections to the catalog for those who only read: they wait neither for a change that is being written to the disk
/// nor for each other. Thread-safe.
class Readers {
 public:
  /// `writer`: lent where a connection cannot be had.
  Readers(std::filesystem::path catalog, Ledger& writer) : catalog_(std::move(catalog)), writer_(writer) {}

  /// One that nobody else has, until it is destroyed, and that shows one moment: all changes that were complete at the
  /// first question.
  class Loan {
   public:
    Loan(Readers& readers, std::unique_ptr<Ledger> lent) : readers_(readers), lent_(std::move(lent)) {}
    ~Loan() { readers_.take_back(std::move(lent_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    Ledger& ledger() const { return lent_ ? *lent_ : readers_.writer_; }

   private:
    Readers& readers_;
    std::unique_ptr<Ledger> lent_;
  };
  Loan borrow();

 private:
  static constexpr std::size_t kMostKept = 8;

  std::unique_ptr<Ledger> take_free();
  void take_back(std::unique_ptr<Ledger> lent);

  const std::filesystem::path catalog_;
  Ledger& writer_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Ledger>> free_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::service
