#pragma once

#include <stdexcept>

namespace gyre::app {

/// The person mistyped; what() is what to tell them.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gyre::app
