/* Keeps a device busy while the host queues up what is to be timed. */
extern "C" __global__ void idle(u32 microseconds)
{
    for (u32 i = 0; i < microseconds; i++)
        __nanosleep(1000);
}
