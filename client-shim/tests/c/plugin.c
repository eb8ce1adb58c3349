/* A library that is linked to the driver and opened out of the program's sight. */
int cuInit(unsigned flags);
int plugin_init(void) { return cuInit(0); }
