/* The innermost of three functions of one name. */
int answer(void) { return 19; }
