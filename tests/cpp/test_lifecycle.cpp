#include "check.h"
TEST(todo) {}
